"""The ways of PyTorch to call a model, and their times. Needs PyTorch and the models only."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.engines.models import Model

Call = Callable[[], object]
WARM_UP = 10


def eager(model: Model) -> Call:
    return lambda: model.module(*model.inputs)


def eager_graph(model: Model) -> Call:
    """Eager's kernels, captured once in a CUDA graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model.module(*model.inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = model.module(*model.inputs)

    def call() -> object:
        graph.replay()
        return outputs

    return call


def compile_graph(model: Model) -> Call:
    """``torch.compile`` with CUDA graphs."""
    return _compiled(model, mode="reduce-overhead")


def compile_default(model: Model) -> Call:
    return _compiled(model, mode="default")


def _compiled(model: Model, mode: str) -> Call:
    torch.compiler.reset()
    compiled = torch.compile(model.module, mode=mode)
    return lambda: compiled(*model.inputs)


WAYS: Mapping[str, Callable[[Model], Call]] = {
    way.__name__: way for way in (eager, eager_graph, compile_graph, compile_default)
}


def prepare(way: str, model: Model) -> Call:
    """Return a warm call of the model.

    Raises:
        ValueError: An output is not finite.
    """
    call = WAYS[way](model)
    for _ in range(WARM_UP):
        outputs = call()
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    if not all(bool(x.isfinite().all()) for x in found if isinstance(x, torch.Tensor)):
        raise ValueError("an output is not finite")
    return call


def times(call: Call, rounds: int, *, cuda: bool) -> dict[str, Any]:
    """Medians of a call's times, in microseconds.

    Returns:
        ``queued_us``: the host's clock until the call returns. ``done_us``: until the GPU is done.
        ``events_us``: between CUDA events around the call, None without a GPU.
    """
    queued, done, events = [], [], []
    wait: Callable[[], None] = torch.cuda.synchronize if cuda else lambda: None
    for _ in range(WARM_UP):
        call()
    wait()
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        returned = time.perf_counter()
        wait()
        queued.append(returned - start)
        done.append(time.perf_counter() - start)
    for _ in range(rounds if cuda else 0):
        events.append(_between_events(call))
    return {
        "queued_us": 1e6 * statistics.median(queued),
        "done_us": 1e6 * statistics.median(done),
        "events_us": 1e3 * statistics.median(events) if events else None,
    }


def _between_events(call: Call) -> float:
    """Milliseconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))
