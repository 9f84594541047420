"""A program of three partitions, builders that fail on one of them, and an executor."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Executor, Future

import torch
from torch import nn

from tests.support.lowering import lower
from trt_et.builders import make_builder
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


class Named:
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
    def be_odd(self, request):
        os.kill(os.getpid(), signal.SIGKILL)


class Slow(Named):
    def be_odd(self, request):
        while not request.monitor.cancelled:
            time.sleep(0.02)


class Unavailable(Named):
    def be_odd(self, request):
        raise BuilderUnavailable("no GPU here")


class Inline(Executor):
    """Does what it is given at once, and whatever a test asks for in addition."""

    def __init__(self, after=lambda request: None):
        self.after = after
        self.requests = []

    def submit(self, function, /, *args, **kwargs):
        future: Future = Future()
        future.set_running_or_notify_cancel()
        future.set_result(function(*args, **kwargs))
        self.requests.append(args[0])
        self.after(args[0])
        return future
