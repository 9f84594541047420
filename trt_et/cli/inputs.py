"""Inputs of a program: from files, from numbers, or random."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from trt_et.errors import OptionError, RunError
from trt_et.inspection import MethodInfo, TensorValue

__all__ = ["check_inputs", "make_inputs", "read_calibration"]

_ARRAYS: Final = (".npy", ".npz")
_AT_MOST: Final = 1 << 34  # Bytes of one input: a damaged file can ask for any size.


def make_inputs(
    method: MethodInfo,
    sources: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
    seed: int,
) -> list[Any]:
    """Make one value for each input of a method.

    Args:
        method: The method, whose tensors have the types and sizes of the inputs.
        sources: Files (``.npy``, ``.npz``, raw bytes) or numbers in the order of the inputs; empty:
            random floats, and integers that are 0 or 1.
        shapes: Sizes of random and raw inputs of dynamic sizes, by index.
        seed: The seed of random inputs.

    Raises:
        OptionError: There are too many or too few, or one has another type or shape.
        RunError: A file cannot be read.
    """
    expected = method.inputs
    sizes = [shapes.get(str(index)) for index in range(len(expected))]
    if unknown := sorted(set(map(int, shapes)) - set(range(len(expected)))):
        raise OptionError(
            f"there is no input {unknown[0]}; the method has {len(expected)}, counted from 0"
        )
    if not sources:
        generator = torch.Generator().manual_seed(seed)
        return [
            _random(index, value, shape, generator)
            for index, (value, shape) in enumerate(zip(expected, sizes, strict=True))
        ]
    given = [value for source in sources for value in _read(source)]
    _check_count(method, given)
    return [
        _convert(index, *parts)
        for index, parts in enumerate(zip(expected, given, sizes, strict=True))
    ]


def read_calibration(sources: Sequence[Path]) -> list[tuple[Any, ...]]:
    """Read the option ``calibration`` of the partitioner.

    Args:
        sources: Files (``.npy``, ``.npz``), each with the inputs of one call in order, or folders
            of such files.

    Raises:
        OptionError: A file has another type, or a folder has no such file.
        RunError: A file cannot be read.
    """
    calls = []
    for source in sources:
        files = [source]
        if source.is_dir():
            files = sorted(file for file in source.iterdir() if file.suffix in _ARRAYS)
        if not files or files[0].suffix not in _ARRAYS:
            raise OptionError(
                f"the calibration {source} is no .npy or .npz file, or folder of them"
            )
        calls += [tuple(map(torch.as_tensor, _read(str(file)))) for file in files]
    return calls


def check_inputs(method: MethodInfo, values: Sequence[Any]) -> None:
    """Check that a method takes these values.

    Raises:
        OptionError: There are too many or too few, or a tensor has another type or shape.
    """
    _check_count(method, values)
    for index, (expected, value) in enumerate(zip(method.inputs, values, strict=True)):
        if expected is None or not isinstance(value, torch.Tensor):
            continue
        if value.dtype != (dtype := getattr(torch, expected.dtype)):
            raise OptionError(f"input {index} is {value.dtype}; expected {dtype}")
        _check_sizes(index, expected, tuple(value.shape))


def _check_count(method: MethodInfo, values: Sequence[Any]) -> None:
    if len(values) != len(method.inputs):
        raise OptionError(f"got {len(values)} inputs; the method has {len(method.inputs)}")


def _check_sizes(index: int, value: TensorValue, shape: Sequence[int] | None) -> tuple[int, ...]:
    """Return the sizes of an input: ``shape``, or else the largest."""
    sizes = value.sizes if shape is None else tuple(shape)
    fits = len(sizes) == len(value.sizes) and all(
        size == most or (value.is_dynamic and 0 <= size <= most)
        for size, most in zip(sizes, value.sizes, strict=True)
    )
    if not fits:
        most = "at most " if value.is_dynamic else ""
        raise OptionError(
            f"input {index} has the sizes {list(sizes)}; expected {most}{list(value.sizes)}"
        )
    if math.prod(sizes) * max(1, value.nbytes // max(1, math.prod(value.sizes))) > _AT_MOST:
        raise RunError(f"input {index} of the sizes {list(sizes)} is larger than 16 GiB")
    return sizes


def _random(
    index: int,
    value: TensorValue | None,
    shape: Sequence[int] | None,
    generator: torch.Generator,
) -> torch.Tensor:
    if value is None:
        raise OptionError(f"input {index} is no tensor: give every input with --input")
    sizes = _check_sizes(index, value, shape)
    dtype = getattr(torch, value.dtype, None)
    if dtype is None:
        raise OptionError(f"input {index} has the type {value.dtype}, which is not supported here")
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, generator=generator).to(dtype)
    return torch.randint(0, 2, sizes, generator=generator).to(dtype)


def _read(source: str) -> list[Any]:
    try:
        return [int(source)]
    except ValueError:
        pass
    path = Path(source)
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return [arrays[name] for name in arrays.files]
        if path.suffix == ".npy":
            return [np.load(path, allow_pickle=False)]
        return [path.read_bytes()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RunError(f"the input {source} cannot be read: {reason}") from error


def _convert(
    index: int,
    value: TensorValue | None,
    given: Any,  # noqa: ANN401
    shape: Sequence[int] | None,
) -> Any:  # noqa: ANN401
    if value is None:
        return given.item() if isinstance(given, np.ndarray) and given.ndim == 0 else given
    dtype = getattr(torch, value.dtype)
    if isinstance(given, bytes):
        sizes = _check_sizes(index, value, shape)
        needed = math.prod(sizes) * dtype.itemsize
        if len(given) != needed:
            raise OptionError(f"input {index} has {len(given)} bytes; expected {needed}")
        if not given:
            return torch.empty(sizes, dtype=dtype)
        return torch.frombuffer(bytearray(given), dtype=dtype).reshape(sizes)
    tensor = torch.as_tensor(np.ascontiguousarray(given) if np.ndim(given) else given)
    if tensor.dtype != dtype:
        # NumPy lacks some types, and a number on the command line has none.
        if isinstance(given, np.ndarray) and hasattr(np, value.dtype):
            raise OptionError(f"input {index} is {tensor.dtype}; expected {dtype}")
        tensor = tensor.to(dtype)
    _check_sizes(index, value, tensor.shape)
    return tensor
