"""The ways of PyTorch to call a model, and their times. Needs PyTorch and the models only."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.engines.models import Model

Call = Callable[[], object]
WARM_UP = 10
_AUTOTUNED: Final = frozenset({"vit_tiny", "resnet18", "bert_mini", "llama"})
_IMAGES: Final = frozenset({"mobilenet_v3", "unet", "detr", "resnet18", "convnext_atto"})
_ATTENTION: Final = frozenset(
    {"vit_tiny", "vit_dynamic_batch", "bert_mini", "bert_masked", "bert_dynamic", "llama"}
    | {"whisper_encoder", "detr", "swin"}
)


@dataclass(frozen=True)
class Way:
    """How PyTorch runs a model.

    Attributes:
        compiled: A mode of ``torch.compile``, or None for eager.
        graph: Captured once in a bare CUDA graph, and replayed.
        channels_last: Weights and images.
        attention: The only backend of ``scaled_dot_product_attention`` that is allowed.
        models: Those that it is tried with; all if None.
    """

    compiled: str | None = None
    graph: bool = True
    channels_last: bool = False
    attention: SDPBackend | None = None
    models: frozenset[str] | None = None


WAYS: Final[Mapping[str, Way]] = {
    "eager": Way(graph=False),
    "eager_graph": Way(),
    "compiled_graph": Way("default"),
    "eager_graph_channels_last": Way(channels_last=True, models=_IMAGES),
    "eager_graph_flash": Way(attention=SDPBackend.FLASH_ATTENTION, models=_ATTENTION),
    "eager_graph_efficient": Way(attention=SDPBackend.EFFICIENT_ATTENTION, models=_ATTENTION),
    "eager_graph_cudnn": Way(attention=SDPBackend.CUDNN_ATTENTION, models=_ATTENTION),
    "compiled_graph_channels_last": Way("default", channels_last=True, models=_IMAGES),
    "autotuned_graph": Way("max-autotune-no-cudagraphs", models=_AUTOTUNED),
}


class Device(Protocol):
    """Where PyTorch runs, so that all of this can be rehearsed on a CPU."""

    name: str

    def capture(self, call: Call) -> Call: ...

    def wait(self) -> None: ...

    @contextmanager
    def memory(self, found: dict[str, Any]) -> Iterator[None]: ...


class Cuda:
    """The first GPU."""

    name = "cuda"

    def capture(self, call: Call) -> Call:
        """Return a replay of the call's kernels in a CUDA graph."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = call()

        def replay() -> object:
            graph.replay()
            return outputs

        return replay

    def wait(self) -> None:
        torch.cuda.synchronize()

    @contextmanager
    def memory(self, found: dict[str, Any]) -> Iterator[None]:
        """Add the most bytes that were allocated meanwhile, beside those of before."""
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        yield
        found["bytes_beside_the_model"] = torch.cuda.max_memory_allocated() - before


class Cpu:
    """For a rehearsal: a captured call is the call."""

    name = "cpu"

    def capture(self, call: Call) -> Call:
        return call

    def wait(self) -> None:
        pass

    @contextmanager
    def memory(self, found: dict[str, Any]) -> Iterator[None]:
        yield


def prepare(way: Way, model: Model, device: Device) -> Call:
    """Return a warm call of the model, whose module and inputs are on the device."""
    module, inputs = model.module, model.inputs
    if way.channels_last:
        module = copy.deepcopy(module).to(memory_format=torch.channels_last)
        inputs = tuple(
            x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs
        )
    if way.compiled is not None:
        torch.compiler.reset()
        module = torch.compile(module, mode=way.compiled, dynamic=False)
    call = _call(module, inputs)
    with nullcontext() if way.attention is None else sdpa_kernel(way.attention):
        call()  # The backend is chosen while a call is queued or captured.
        call = device.capture(call) if way.graph else call
        for _ in range(WARM_UP):
            call()
    device.wait()
    return call


def _call(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Call:
    return lambda: module(*inputs)


def outputs_of(call: Call) -> list[torch.Tensor]:
    found = call()
    return [x.clone() for x in (found if isinstance(found, tuple | list) else (found,))]


def times(call: Call, rounds: int, seconds: float, wait: Callable[[], None]) -> dict[str, Any]:
    """Times of a call in microseconds, on the host's clock.

    Args:
        call: Is warm.
        rounds: How many calls are timed.
        seconds: After these no more calls are timed.
        wait: Returns when the device has nothing to do.

    Returns:
        ``queued_us_p50`` and ``_p99``: until the call returns. ``done_us_p50`` and ``_p99``: until
        the device is done. ``rounds``: how many calls were timed.
    """
    queued, done = [], []
    for _ in range(WARM_UP):
        call()
    wait()
    until = time.perf_counter() + seconds
    while len(done) < rounds and (not done or time.perf_counter() < until):
        start = time.perf_counter()
        call()
        queued.append(time.perf_counter() - start)
        wait()
        done.append(time.perf_counter() - start)
    found: dict[str, Any] = {"rounds": len(done)}
    for name, values in (("queued_us", queued), ("done_us", done)):
        for percent in (50, 99):
            found[f"{name}_p{percent}"] = 1e6 * quantile(values, percent / 100)
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest rank's value."""
    return sorted(values)[max(ceil(share * len(values)), 1) - 1]


def difference(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The worst output's distance from what is expected, over the norm of that; 2-norms.

    Raises:
        ValueError: The outputs are not of the same number or shapes, or not finite.
    """
    shapes = [[tuple(x.shape) for x in tensors] for tensors in (found, expected)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"outputs of {shapes[0]}, expected {shapes[1]}")
    worst = 0.0
    for have, want in zip(found, expected, strict=True):
        have, want = have.double().cpu(), want.double().cpu()
        if not have.isfinite().all():
            raise ValueError("an output is not finite")
        scale = max(float(want.norm()), 1e-12)
        worst = max(worst, float((have - want).norm()) / scale)
    return worst
