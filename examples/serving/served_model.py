"""A program that answers requests, in any server: app.py and ray_app.py use it."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from pydantic import BaseModel, ValidationError

import trt_et.runtime
from trt_et.errors import TrtEtError
from trt_et.inspection import TensorValue, inspect_file


class Tensor(BaseModel):
    """A tensor: its sizes, and its elements in row-major order; NaN and infinity are null."""

    shape: list[int]
    data: list[int | float]


class Tensors(BaseModel):
    """The inputs of a request, or the outputs of an answer; ``version`` is the file's."""

    tensors: list[Tensor]
    version: str = ""


class RefusedRequest(Exception):
    """The request is wrong."""


class Model:
    """One version of the program."""

    def __init__(self, path: Path) -> None:
        self.version = version_of(path)
        (method,) = (m for m in inspect_file(path).methods if m.name == "forward")
        self.expected = [value for value in method.inputs if value is not None]
        if len(self.expected) != len(method.inputs):
            raise ValueError("forward has an input that is no tensor")
        self.method = trt_et.runtime.load_program(path).load_method("forward")
        self.ones = [torch.ones(v.sizes, dtype=getattr(torch, v.dtype)) for v in self.expected]
        for _ in range(3):  # The third run captures the CUDA graph.
            self.method.execute(self.ones)

    def answer(self, body: bytes) -> Tensors:
        """Run the program on the inputs in a request."""
        try:
            given = Tensors.model_validate_json(body).tensors
        except ValidationError as error:
            raise RefusedRequest(str(error)) from error
        if len(given) != len(self.expected):
            raise RefusedRequest(f"{len(given)} tensors; expected {len(self.expected)}")
        inputs = [to_torch(*pair) for pair in zip(given, self.expected, strict=True)]
        try:
            outputs = self.method.execute(inputs)
        except TrtEtError as error:
            self.method.execute(self.ones)  # Fails, too, if it is not the request's fault.
            raise RefusedRequest(str(error)) from error
        found = [torch.as_tensor(output) for output in outputs]
        tensors = [Tensor(shape=[*t.shape], data=t.flatten().tolist()) for t in found]
        return Tensors(tensors=tensors, version=self.version)


def to_torch(given: Tensor, expected: TensorValue) -> torch.Tensor:
    """Check an input, and return it as a tensor."""
    fits = len(given.shape) == len(expected.sizes) and all(
        0 < size <= largest if expected.is_dynamic else size == largest
        for size, largest in zip(given.shape, expected.sizes, strict=True)
    )
    if not fits or math.prod(given.shape) != len(given.data):
        raise RefusedRequest(
            f"a tensor of shape {given.shape} with {len(given.data)} elements; expected "
            f"{'at most ' if expected.is_dynamic else ''}{list(expected.sizes)}"
        )
    dtype = getattr(torch, expected.dtype)
    if not dtype.is_floating_point and any(isinstance(value, float) for value in given.data):
        raise RefusedRequest(f"a fraction; expected {expected.dtype}")
    try:
        return torch.tensor(given.data, dtype=dtype).reshape(given.shape)
    except (RuntimeError, OverflowError) as error:
        raise RefusedRequest(f"an element is no {expected.dtype}: {error}") from error


def version_of(path: Path) -> str:
    """Return what differs after another file was renamed to this name."""
    found = path.stat()
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}"
