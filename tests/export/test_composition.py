"""Programs that hold more than engines: state, other backends, ourselves twice."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge, to_edge_transform_and_lower
from torch import nn
from torch.nn import functional

from tests.support.lowering import reference
from tests.support.models import make
from tests.support.stock_process import check
from trt_et.engine_info import parse_device_id
from trt_et.inspection import inspect_program


@pytest.fixture(autouse=True)
def _no_grad():
    # With gradients on, to_executorch() itself refuses programs with mutated buffers.
    with torch.no_grad():
        yield


def lowered(program: torch.export.ExportedProgram, *partitioners) -> bytes:
    manager = to_edge_transform_and_lower(program, partitioner=list(partitioners))
    return bytes(manager.to_executorch().buffer)


def backends(pte: bytes) -> list[str]:
    return [delegate.backend_id for delegate in inspect_program(pte)[0].delegates]


def test_state_lives_across_calls(tmp_path):
    class Accumulator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            self.total.add_(self.linear(x))
            return self.total * 2

    torch.manual_seed(0)
    model = Accumulator().eval()
    calls = [(torch.randn(1, 3).squeeze(0),) for _ in range(4)]
    pte = lowered(torch.export.export(model, calls[0]), reference())
    model.total.zero_()
    check(tmp_path, pte, model, *calls)


class CachedAttention(nn.Module):
    """One decoder layer: a token a call, keys and values kept in buffers."""

    def __init__(self, length: int = 64, width: int = 16) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("keys", torch.zeros(1, length, width))
        self.register_buffer("values", torch.zeros(1, length, width))
        self.length = length

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).split(16, dim=-1)
        self.keys.index_copy_(1, position, k)
        self.values.index_copy_(1, position, v)
        seen = torch.arange(self.length).unsqueeze(0) <= position.unsqueeze(1)
        return self.out(
            functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        )


def test_a_kv_cache_decodes_64_tokens_like_eager(tmp_path):
    torch.manual_seed(0)
    model = CachedAttention().eval()
    calls = [(torch.randn(1, 1, 16), torch.tensor([position])) for position in range(64)]
    pte = lowered(torch.export.export(model, calls[0]), reference())
    assert "TensorRTBackend" in backends(pte)
    model.keys.zero_()
    model.values.zero_()
    check(tmp_path, pte, model, *calls)


def test_ourselves_twice_on_two_gpus(tmp_path):
    model, inputs = make("mlp")
    pte = lowered(
        torch.export.export(model, inputs),
        reference(device="cuda:0", excluded_ops=["aten.linear", "aten.addmm"]),
        reference(device="cuda:1"),
    )
    (method,) = inspect_program(pte)
    assert {parse_device_id(delegate.blob) for delegate in method.delegates} == {0, 1}
    check(tmp_path, pte, model, inputs)


def test_a_lowered_manager_is_lowered_further(tmp_path):
    model, inputs = make("vit")
    manager = to_edge(torch.export.export(model, inputs))
    manager = manager.to_backend(reference(excluded_ops=["aten.gelu"]))
    before = [n for n in manager.exported_program().graph.nodes if "delegate" in n.name]
    manager = manager.to_backend(reference(device="cuda:1"))
    pte = bytes(manager.to_executorch().buffer)
    assert len(backends(pte)) > len(before) > 0
    check(tmp_path, pte, model, inputs)


def test_shared_weights_belong_to_each_partition_that_uses_them(tmp_path):
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.scale = nn.Parameter(torch.randn(4))

        def forward(self, x):
            y = torch.cumsum(self.linear(x) * self.scale, 1)
            return self.linear(y) + torch.cumsum(self.scale.expand(2, 4), 1)

    torch.manual_seed(0)
    model = Shared().eval()
    inputs = (torch.randn(2, 4),)
    pte = lowered(
        torch.export.export(model, inputs), reference(excluded_ops=[torch.ops.aten.cumsum])
    )
    check(tmp_path, pte, model, inputs)


def test_outputs_that_are_inputs_weights_or_duplicates(tmp_path):
    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))
            self.register_buffer("used", torch.arange(3.0))

        def forward(self, x, unused):
            y = (x * 2).relu() + self.used
            return x, y, y, self.weight, self.used, y.view(-1)

    model = Returns().eval()
    inputs = (torch.randn(3), torch.randn(2))
    partitioner = reference()
    pte = lowered(torch.export.export(model, inputs), partitioner)
    assert backends(pte) == ["TensorRTBackend"]
    assert not partitioner.report.not_delegated  # Not even what uses a weight that is returned.
    check(tmp_path, pte, model, inputs)
