"""A process per model: all may compile at once, and an error of CUDA ends one model's only."""

from __future__ import annotations

import time
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from benchmarks.engines.models import Model
from benchmarks.gpu.models import half_model
from benchmarks.gpu.ways import Call, prepare, times

Result = dict[str, Any]


class Worker:
    """A process that prepares and times one model's ways.

    Attributes:
        pipe: Has something to read once an answer is there.
    """

    def __init__(self, name: str, device: str, rounds: int) -> None:
        spawn = get_context("spawn")
        self.pipe, other = spawn.Pipe()
        self._process: BaseProcess = spawn.Process(
            target=_serve, args=(name, device, rounds, other), daemon=True
        )
        self._process.start()
        other.close()

    def ask(self, way: str | None) -> None:
        """Prepare a way, or with None time the way that is prepared."""
        with suppress(OSError):  # ``answer`` says that the process has ended.
            self.pipe.send(way)

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


def _serve(name: str, device: str, rounds: int, pipe: Connection) -> None:
    model: Model | None = None
    call: Call = _nothing
    with torch.inference_mode():
        while True:
            try:
                way = pipe.recv()
            except EOFError:
                return
            start = time.monotonic()
            try:
                if way is None:
                    pipe.send(times(call, rounds, cuda=device == "cuda"))
                    continue
                model = model or _moved(half_model(name), device)
                call = prepare(way, model)
                pipe.send({"prepare_s": round(time.monotonic() - start, 2)})
            except Exception as error:  # The model's next way may work.
                pipe.send({"error": f"{type(error).__name__}: {error}"[:400]})


def _nothing() -> None:
    raise RuntimeError("no way is prepared")


def _moved(model: Model, device: str) -> Model:
    return Model(model.module.to(device), tuple(x.to(device) for x in model.inputs))
