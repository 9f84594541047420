"""Models that end TensorRT-RTX's builder, most with attentions; their neighbours; their builds.

A build has a process of its own, which the builder may end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.support.models import Function
from tests.support.programs.crashing_builders import remove_workarounds
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines.base import BuildOptions, BuildRequest
from trt_et.engines.serialize import build_network, serialize

# Far more than a build takes.
_SECONDS = 300
_BATCH = Dim("batch", min=1, max=4)
_LENGTH = Dim("length", min=2, max=9)


@dataclass
class Case:
    """A model, example inputs, and the dynamic dimensions of each; None: static shapes."""

    model: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    sizes: list[dict[int, Any]] | None = None

    def program(self) -> torch.export.ExportedProgram:
        model = self.model if isinstance(self.model, nn.Module) else Function(self.model)
        sizes = self.sizes
        if sizes is not None and not isinstance(self.model, nn.Module):
            sizes = [tuple(sizes)]  # type: ignore[list-item]
        return torch.export.export(model.eval(), self.inputs, dynamic_shapes=sizes and tuple(sizes))

    def request(self) -> BuildRequest:
        program = make_engine_program(self.program().run_decompositions({}), "test")
        return BuildRequest("test", program, 0, BuildOptions())


def of(batch: int, heads: int, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(batch, heads, length, 8, generator=generator)


def shared_query(function: Callable[..., Any], *lengths: int, heads: int = 2) -> Case:
    inputs = tuple(of(2, heads if not i else 2, n) for i, n in enumerate((6, *lengths)))
    return Case(function, inputs, [{0: _BATCH}] * len(inputs))


def two(q: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return attention(q, a, a) + 0.5 * attention(q, b, b)


def grouped(q: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return attention(q, a, a, enable_gqa=True) + attention(q, b, b, enable_gqa=True)


def of_product(q: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product = q * 0.3
    return attention(product, a, a, scale=1.0) + attention(product, b, b, scale=1.0)


def of_scaled_keys(q: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    scaled = a * 2
    return attention(q, scaled, scaled) + attention(q + 1, scaled, scaled)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return ((q * 0.3) @ k.transpose(-1, -2)).softmax(-1) @ v


class FeatureMap(nn.Module):
    """Self-attention over a feature map of the shape (batch, height, width, channels)."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(32, 96, bias=False)
        self.proj = nn.Linear(32, 32)
        self.attend = attend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, _ = x.shape
        heads = self.qkv(x).reshape(batch, height * width, 3, 4, 8)
        y = self.attend(*heads.permute(2, 0, 3, 1, 4).unbind(0))
        return x + self.proj(y.transpose(1, 2).reshape(x.shape))


def feature_map(*shape: int, attend: Callable[..., torch.Tensor] = attention) -> Case:
    return Case(FeatureMap(attend), (torch.randn(*shape, 32),))


# These end the process of the builder of TensorRT-RTX 1.5 or 1.6.
CRASHES = {
    "an einsum and its bias": Case(
        lambda x, w, b: torch.einsum("btc,cd->btd", x, w) + b,
        (torch.randn(1, 6, 64), torch.randn(64, 32), torch.randn(32)),
    ),
    "two attentions of one query": shared_query(two, 5, 5),
    "three": shared_query(lambda q, a, b: two(q, a, b) + attention(q, b, a), 5, 5),
    "its own keys, too": shared_query(lambda q, a: attention(q, a, a) + attention(q, q, q), 5),
    "masks": shared_query(
        lambda q, a, b: (
            attention(q, a, a, torch.ones(6, 5).bool().tril()) + attention(q, b, b, is_causal=True)
        ),
        5,
        5,
    ),
    "grouped heads": shared_query(grouped, 5, 5, heads=4),
    "a product": shared_query(of_product, 5, 5),
    "equal products": shared_query(lambda q, a, b: two(q * 1.5, a, b) + two(q * 1.5, b, a), 5, 5),
    "keys that are a product": shared_query(of_scaled_keys, 5),
    "a dynamic length": Case(
        two, (of(2, 2, 6), of(2, 2, 5), of(2, 2, 5)), [{0: _BATCH, 2: _LENGTH}] + [{0: _BATCH}] * 2
    ),
    "a feature map": feature_map(1, 4, 4),
    "a column": feature_map(1, 16, 1),
    "an attention by hand": feature_map(1, 4, 4, attend=by_hand),
}
# This never did.
NEIGHBOURS = {
    "two scales": shared_query(
        lambda q, a, b: attention(q, a, a, scale=0.3) + attention(q, b, b, scale=0.4), 5, 5
    ),
}


def build(name: str, *, workarounds: bool = True) -> str:
    """What became of a case's build: "built", "failed", or the signal that ended the process."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.warmed_up", __name__])
    child = context.Process(target=_build, args=(name, workarounds))
    child.start()
    child.join(_SECONDS)
    if child.exitcode is None:
        child.kill()
        child.join()
    if child.exitcode < 0:
        return signal.Signals(-child.exitcode).name
    return "built" if child.exitcode == 0 else "failed"


def _build(name: str, workarounds: bool) -> None:
    if not workarounds:
        remove_workarounds()
    written: list[int] = []

    def write(piece: Any) -> int:
        written.append(len(piece))
        return len(piece)

    network = build_network({**CRASHES, **NEIGHBOURS}[name].request(), "tensorrt_rtx")
    serialize(network, "test", write)
    # Past the clean-up of libraries that other threads still use.
    os._exit(0 if sum(written) else 1)
