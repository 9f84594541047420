"""The operators of ExecuTorch's ``--use_sdpa_with_kv_cache``."""

from __future__ import annotations

import pytest
import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from trt_et import TensorRTPartitioner
from trt_et.passes.llama_operators import replace_llama_operators

LENGTH, HEADS, KEY_HEADS, WIDTH = 16, 4, 2, 8


class Attention(nn.Module):
    """Attention of new tokens [1, n, heads, width] to a cache."""

    def __init__(self, *, causal=True, indices=False) -> None:
        super().__init__()
        self.causal, self.indices = causal, indices
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, LENGTH, KEY_HEADS, WIDTH))

    def forward(self, query: Tensor, rows: Tensor, position: Tensor) -> Tensor:
        start = position[0].item()
        count = query.shape[1]
        for cache, new in ((self.keys, rows), (self.values, rows * 2)):
            if self.indices:
                indices = (torch.arange(count) + start) % LENGTH
                update = torch.ops.llama.update_cache_with_indices
                update(new, cache, start, indices.unsqueeze(0))
            else:
                torch.ops.llama.update_cache(new, cache, start)
        attend = torch.ops.llama.custom_sdpa
        if self.causal:
            return attend(query, self.keys, self.values, start, None, 0.0, True)
        shown = torch.arange(LENGTH) <= torch.arange(count)[:, None] + start
        mask = torch.where(shown, 0.0, -torch.inf)
        return attend(query, self.keys, self.values, 0, mask, 0.0, False, 0.25)


def inputs(count: int, position: int) -> tuple[Tensor, Tensor, Tensor]:
    query = torch.randn(1, count, HEADS, WIDTH)
    rows = torch.randn(1, count, KEY_HEADS, WIDTH)
    return query, rows, torch.tensor([position])


def export(model: nn.Module) -> ExportedProgram:
    count = {1: Dim("n", max=LENGTH - 1)}
    shapes = (count, count, None)
    with torch.no_grad():
        return torch.export.export(model, inputs(3, 0), dynamic_shapes=shapes, strict=True)


def llama_operators(program: ExportedProgram) -> list[str]:
    return [node.name for node in program.graph.nodes if "llama." in f"{node.target} {node.args}"]


@pytest.mark.parametrize(
    ("options", "functional"),
    [({}, False), ({}, True), ({"causal": False}, False), ({"indices": True}, True)],
    ids=str,
)
def test_core_operators_give_the_values_of_executorchs_kernels(options, functional):
    program = export(Attention(**options))
    if functional:
        program = program.run_decompositions({})
    replaced = replace_llama_operators(program)
    assert llama_operators(program)
    assert not llama_operators(replaced)
    ours, eager = replaced.module(), Attention(**options)
    for count, position in ((5, 0), (1, 5), (4, 6)):
        given = inputs(count, position)
        torch.testing.assert_close(ours(*given), eager(*given), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours.keys, eager.keys)
        torch.testing.assert_close(ours.values, eager.values)


def test_quantized_caches_keep_their_operators():
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(1, LENGTH, 1, 4, dtype=torch.int8))

        def forward(self, rows: Tensor, position: Tensor) -> Tensor:
            torch.ops.llama.update_cache(rows, self.cache, position[0].item())
            return self.cache.float() * 2

    with torch.no_grad():
        example = (torch.ones(1, 1, 1, 4, dtype=torch.int8), torch.tensor([0]))
        program = torch.export.export(Quantized(), example, strict=True)
    assert llama_operators(replace_llama_operators(program))
    report = TensorRTPartitioner(builder="reference").explain(program)
    assert "leave out ExecuTorch's quantize_kv_cache" in str(report)


def test_a_program_of_other_operators_is_returned_as_it_is():
    program = torch.export.export(nn.Linear(4, 4), (torch.ones(1, 4),))
    assert replace_llama_operators(program) is program


def test_attention_to_a_cache_is_one_engine():
    program = export(Attention())
    report = TensorRTPartitioner(builder="reference", full_graph=True).explain(program)
    assert len(report.partitions) == 1
