"""A process per model: all may compile at once, and an error of CUDA ends one model's only."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from benchmarks.engines.models import Model
from benchmarks.gpu.models import described, half_model, hash_of, tensor_bytes
from benchmarks.gpu.ways import (
    WAYS,
    Call,
    Cpu,
    Cuda,
    Device,
    difference,
    outputs_of,
    prepare,
    times,
)

Result = dict[str, Any]


class Worker:
    """A process that prepares, times and compares one model's ways.

    Attributes:
        pipe: Has something to read once an answer is there.
    """

    def __init__(self, name: str, device: str) -> None:
        spawn = get_context("spawn")
        self.pipe, other = spawn.Pipe()
        self._process: BaseProcess = spawn.Process(
            target=_serve, args=(name, device, other), daemon=True
        )
        self._process.start()
        other.close()

    def ask(self, question: str, *arguments: object) -> None:
        """Call a method of ``Bench``."""
        with suppress(OSError):  # ``answer`` says that the process has ended.
            self.pipe.send((question, arguments))

    def answer(self, seconds: float) -> Result:
        """Wait for the answer; a process that has none in time is ended."""
        try:
            if self.pipe.poll(seconds):
                result: Result = self.pipe.recv()
                return result
        except (EOFError, OSError):
            self.end()
            return {"error": f"the process of this model ended with {self._process.exitcode}"}
        self.end()
        return {"error": "not run: no answer in time"}

    def end(self) -> None:
        self._process.kill()
        self._process.join()


class Bench:
    """One model, its ways, and what eager returns."""

    def __init__(self, name: str, device: Device) -> None:
        self._name, self._device = name, device
        self._models: dict[int, Model] = {}
        self._calls: dict[tuple[str, int], Call] = {}
        self._eager: dict[int, dict[str, list[torch.Tensor]]] = {}

    def inputs(self, batch: int, prefix: str) -> Result:
        """Write the inputs' bytes, ``PREFIX.inN.bin``; hash them and the weights."""
        model = half_model(self._name, batch)
        for index, tensor in enumerate(model.inputs):
            Path(f"{prefix}.in{index}.bin").write_bytes(tensor_bytes(tensor))
        found = {
            "inputs": described(model.inputs),
            "weights_sha256": hash_of(model.module.state_dict().values()),
        }
        device = self._device.name
        if self._models:  # The module is there.
            module = next(iter(self._models.values())).module
        else:
            module = model.module.to(device)
        self._models[batch] = Model(module, tuple(x.to(device) for x in model.inputs))
        return found

    def prepare(self, way: str, batch: int) -> Result:
        """Make a way's call ready, and compare its outputs with eager's."""
        start = time.monotonic()
        found: Result = {}
        with self._device.memory(found):
            call = prepare(WAYS[way], self._models[batch], self._device)
        self._calls[way, batch] = call
        found["prepare_s"] = round(time.monotonic() - start, 2)
        return found | self._differences(outputs_of(call), batch)

    def time(self, way: str, batch: int, rounds: int, seconds: float) -> Result:
        return times(self._calls[way, batch], rounds, seconds, self._device.wait)

    def compare(self, batch: int, prefix: str) -> Result:
        """Compare what the probe wrote, ``PREFIX-N.bin``, with eager's outputs."""
        expected = self._expected(batch)["float16"]
        found = []
        for index, like in enumerate(expected):
            data = bytearray(Path(f"{prefix}-{index}.bin").read_bytes())
            if len(data) != like.numel() * like.element_size():
                raise ValueError(f"output {index} has {len(data)} bytes; expected {like.shape}")
            flat = torch.frombuffer(data, dtype=like.dtype)
            found.append(torch.as_strided(flat, like.shape, like.stride()))
        return self._differences(found, batch)

    def _differences(self, found: list[torch.Tensor], batch: int) -> Result:
        expected = self._expected(batch)
        return {f"from_eager_{name}": difference(found, like) for name, like in expected.items()}

    def _expected(self, batch: int) -> dict[str, list[torch.Tensor]]:
        """Eager's outputs in float16 and in float32."""
        if batch not in self._eager:
            model = self._models[batch]
            exact = copy.deepcopy(model.module).float()
            inputs = [x.float() if x.is_floating_point() else x for x in model.inputs]
            self._eager[batch] = {
                "float16": outputs_of(lambda: model.module(*model.inputs)),
                "float32": outputs_of(lambda: exact(*inputs)),
            }
        return self._eager[batch]


def _serve(name: str, device: str, pipe: Connection) -> None:
    bench = Bench(name, Cuda() if device == "cuda" else Cpu())
    with torch.inference_mode():
        while True:
            try:
                question, arguments = pipe.recv()
            except EOFError:
                return
            ask: Callable[..., Result] = getattr(bench, question)
            try:
                pipe.send(ask(*arguments))
            except Exception as error:  # The model's next way may work.
                pipe.send({"error": f"{type(error).__name__}: {error}"[:400]})
