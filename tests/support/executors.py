"""A program of three partitions, builders that fail on one of them, and an executor."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
from concurrent.futures import Executor, Future
from pathlib import Path

import torch
from torch import nn

from tests.support.lowering import lower
from trt_et.engines import BuildRequest, EngineBuilder, make_builder
from trt_et.engines.job import Job
from trt_et.engines.workers import build_all
from trt_et.errors import BuilderUnavailable


class Chain(nn.Module):
    """Three different partitions, if cumsum is excluded."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        first, second, third = self.layers
        x = torch.cumsum(first(x).relu(), 1)
        return third(torch.cumsum(second(x), 1)).tanh()


def chain() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(Chain().eval(), (torch.randn(2, 4),))


def export(**options) -> bytes:
    return lower(chain(), excluded_ops=["aten.cumsum.default"], **options)


class Named(EngineBuilder):
    """A builder that does something odd with the partition of one name."""

    name = "named"

    def __init__(self, odd: str) -> None:
        self.odd = odd

    def build(self, request):
        if request.partition == self.odd:
            self.be_odd(request)
        return make_builder("reference").build(request)

    def be_odd(self, request):
        raise ValueError("out of luck")


class Dying(Named):
    def __init__(self, odd: str, number: int = signal.SIGKILL) -> None:
        super().__init__(odd)
        self.number = number

    def fingerprint(self) -> str:
        return "the same, dying or not"

    def be_odd(self, request):
        os.kill(os.getpid(), self.number)


class KilledOnce(Dying):
    """Killed the first time only, as by a memory that is full for the moment."""

    def __init__(self, odd: str, marker: Path) -> None:
        super().__init__(odd)
        self.marker = marker

    def be_odd(self, request):
        with contextlib.suppress(FileExistsError):
            self.marker.touch(exist_ok=False)
            super().be_odd(request)


class Slow(Named):
    def be_odd(self, request):
        if begun := os.environ.get("TRT_ET_TEST_BEGUN"):
            Path(begun).touch()
        while not request.monitor.cancelled:
            time.sleep(0.02)


class Unavailable(Named):
    def be_odd(self, request):
        raise BuilderUnavailable("no GPU here")


class Inline(Executor):
    """Calls at once what it is given; ``before`` gets the file of the program first."""

    def __init__(self, before=lambda file: None):
        self.before = before
        self.calls = 0

    def submit(self, function, /, *args, **kwargs):
        future: Future = Future()
        self.calls += 1
        self.before(Path(args[0]))
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Submitted(Inline):
    """Makes each call with what a pickle of its arguments holds."""

    def submit(self, function, /, *args, **kwargs):
        return super().submit(lambda *_: function(*pickle.loads(pickle.dumps(args))), *args)


def sent(request: BuildRequest, builder) -> bytes:
    """What a worker returns for a request."""

    class Failed(Job):
        def failed(self, error):
            return error

    job = Failed(request.partition, builder, request.device_id, request.options)
    job.request = request
    ((_, blob),) = build_all(Submitted(), [job])
    return blob


class Recording(EngineBuilder):
    """Keeps the request that a worker gets."""

    name = "reference"
    got: BuildRequest

    def build(self, request):
        Recording.got = request
        return b"engine"
