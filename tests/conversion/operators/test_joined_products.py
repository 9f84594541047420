"""Query, key and value of one input are one product, by both roads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.support.lowering import blobs, lower
from tests.support.mended import leave_out
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.programs.quantized_networks import needs_rtx
from trt_et.conversion.operators.joined_products import JOINED_HEADS
from trt_et.engine_info import decode_blob
from trt_et.engines.rtx_network import RtxParserBuilder
from trt_et.inspection import read_kernels

pytestmark = needs_rtx


class Attention(nn.Module):
    """Attention with layers of its own for query, key and value."""

    def __init__(self, *, heads: int = 4, shared: int = 4, cross: bool = False) -> None:
        super().__init__()
        self.query = nn.Linear(64, 64)
        self.key = nn.Linear(64, 16 * shared, bias=False)  # As in Whisper.
        self.value = nn.Linear(64, 16 * shared)
        self.out = nn.Linear(64, 64)
        self.repeats, self.cross = heads // shared, cross

    def forward(self, x: Tensor) -> Tensor:
        memory = x.flip(1) if self.cross else x
        q, k, v = (
            layer(source).unflatten(-1, (-1, 16)).transpose(1, 2)
            for layer, source in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        k, v = (each.repeat_interleave(self.repeats, 1) for each in (k, v))
        return self.out(attention(q, k, v).transpose(1, 2).flatten(2)) + x


class Joined(Attention):
    """The same with one layer, by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(64, 192)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query(x).unflatten(-1, (3, -1, 16)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(attention(q, k, v).transpose(1, 2).flatten(2)) + x


CASES = {
    "by hand": Joined(),
    "self": Attention(),
    "fewer keys": Attention(shared=2),
    "cross": Attention(cross=True),
}
BUILDERS = {"converters": lambda: "tensorrt_rtx", "parser": RtxParserBuilder}


def program(model: nn.Module, *, half: bool = True, dynamic: bool = False):
    dtype = torch.float16 if half else torch.float32
    x = torch.randn(2, 6, 64, dtype=dtype)
    sizes = ({0: Dim("b", min=1, max=4), 1: Dim("t", min=2, max=16)},) if dynamic else None
    model = model.to(dtype).eval().requires_grad_(requires_grad=False)
    return torch.export.export(model, (x,), dynamic_shapes=sizes)


def kernels(name: str, builder: str) -> int:
    (blob,) = blobs(lower(program(CASES[name]), builder=BUILDERS[builder]()))
    found = read_kernels(decode_blob(blob).engine)
    assert found is not None
    return len(found.kernels)


@pytest.mark.parametrize("builder", BUILDERS)
def test_three_layers_have_the_kernels_of_one(builder):
    assert kernels("self", builder) == kernels("by hand", builder)


@pytest.mark.usefixtures("registry_is_put_back")
@pytest.mark.parametrize("name", ["self", pytest.param("cross", marks=pytest.mark.long)])
def test_apart_they_have_more(name):
    joined = kernels(name, "converters")
    leave_out([JOINED_HEADS.name])
    assert joined < kernels(name, "converters")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["self", "fewer keys", "cross"])
def test_the_network_equals_eager(name, dynamic):
    _, partitioner = lower_and_compare(program(CASES[name], half=False, dynamic=dynamic))
    assert len(partitioner.report.partitions) == 1


def test_layers_of_one_input_without_heads_stay_apart():
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up = nn.Linear(64, 96), nn.Linear(64, 96)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.silu(self.gate(x)) * self.up(x)

    module = program(Gated(), half=False).module()
    assert all(
        JOINED_HEADS.rewrite(n) is None
        for n in module.graph.nodes
        if n.target in JOINED_HEADS.targets
    )
