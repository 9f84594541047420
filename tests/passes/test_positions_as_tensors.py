"""Positions that a program reads with ``item()``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tests.support.lowering import finish
from tests.support.sampled import sampled
from tests.support.simulated_gpus import load_method
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.inspection import inspect_program
from trt_et.passes.positions_as_tensors import keep_positions_in_tensors

LENGTH = 16


def read(position: Tensor, end: int = LENGTH) -> Any:
    """The number in a tensor, with the checks of ExecuTorch's models."""
    start = position[-1].item()
    torch._check(start >= 0)
    torch._check(start < end)
    return start


class Function(nn.Module):
    """Takes rows [1, 2, n, 4] and a position; has a table and a cache."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        table = torch.arange(LENGTH * 4.0).reshape(LENGTH, 4)
        self.register_buffer("table", table)
        self.register_buffer("cache", torch.zeros(1, 2, LENGTH, 4))
        self.register_buffer("positions", torch.zeros(LENGTH, dtype=torch.int64))
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, rows: Tensor, position: Tensor) -> Any:
        return self.function(self, rows, position)


def narrow(m, rows, position):
    return rows * m.table.narrow(0, read(position), rows.shape[2])


def slices(m, rows, position):
    start = read(position)
    torch._check(start + rows.shape[2] <= LENGTH)
    return rows * m.table[start : start + rows.shape[2]]


def index_copy(m, rows, position):
    m.cache.index_copy_(2, torch.arange(rows.shape[2]) + read(position), rows)
    return m.cache * 2


def slice_scatter(m, rows, position):
    start = read(position)
    torch._check(start + rows.shape[2] <= LENGTH)
    m.cache[:, :, start : start + rows.shape[2]] = rows
    return m.cache * 2


def narrow_and_copy(m, rows, position):
    m.cache.narrow(2, read(position), rows.shape[2]).copy_(rows)
    return m.cache * 2


def one_row(m, rows, position):
    start = read(position)
    m.cache.select(2, start).copy_(rows[:, :, 0])
    return m.cache + m.table.select(0, start)


def causal_mask(m, rows, position):
    start = read(position)
    columns = torch.arange(LENGTH)
    causal = columns <= torch.arange(rows.shape[2]).view(-1, 1) + start
    written = torch.where(columns < start, columns, torch.full((LENGTH,), -1))
    return rows.sum(-1) + torch.where(causal, 0.0, 1.0).sum(-1), written


def ring(m, rows, position):
    positions = torch.arange(rows.shape[2]) + read(position, 10**6)
    m.positions.index_copy_(0, positions % LENGTH, positions)
    m.cache.index_copy_(2, positions % LENGTH, rows)
    return m.cache * m.positions[:, None]


def arithmetic(m, rows, position):
    start = read(position)
    steps = torch.arange(start, start + rows.shape[2]) + (2 * start - 1)
    return rows * steps[:, None], torch.full((3,), start + 1)


def two_positions(m, rows, position):
    first, second = read(position), read(position + 1)
    return rows + torch.arange(rows.shape[2])[:, None] * (first * second)


def view_of_what_is_written(m, rows, position):
    part = m.cache.narrow(2, read(position), rows.shape[2])
    m.cache.mul_(2).add_(1)
    return part * rows


def slice_that_is_written_and_read(m, rows, position):
    part = m.cache.narrow(2, read(position), rows.shape[2])
    part.copy_(rows)
    return part.add_(1) * 2


def narrower_rows(m, rows, position):
    m.cache.narrow(2, read(position), rows.shape[2]).copy_(rows[:, :1])
    return m.cache * 2


def position_that_is_written(m, rows, position):
    place = position.clone()
    start = read(place)
    place.add_(3)
    return rows * m.table.narrow(0, start, rows.shape[2]), place


def number_that_is_written(m, rows, position):
    start = read(position)
    full = torch.full((3,), start)
    full[1:].add_(1)
    steps = torch.arange(start, start + rows.shape[2])
    steps.mul_(2)
    return full, steps, torch.arange(start, start + rows.shape[2])


USES = (
    *(narrow, slices, index_copy, slice_scatter, narrow_and_copy, one_row, causal_mask),
    *(ring, arithmetic, two_positions, view_of_what_is_written, narrower_rows),
    *(slice_that_is_written_and_read, position_that_is_written, number_that_is_written),
)


def export(function: Callable[..., Any], dynamic: bool, dtype=torch.int64) -> ExportedProgram:
    shapes = ({2: Dim("n", max=LENGTH - 1)} if dynamic else None, None)
    example = (torch.randn(1, 2, 3, 4), torch.tensor([0], dtype=dtype))
    with torch.no_grad():
        return torch.export.export(Function(function), example, dynamic_shapes=shapes, strict=True)


def items(program: ExportedProgram) -> list[str]:
    reads = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
    return [n.name for n in program.graph.nodes if n.target in reads]


@pytest.mark.parametrize(
    ("use", "dynamic"),
    [(use, True) for use in USES] + [(use, False) for use in (slices, slice_scatter, causal_mask)],
)
def test_no_number_is_read_and_the_values_are_eagers(use, dynamic):
    program = keep_positions_in_tensors(export(use, dynamic))
    assert not items(program)
    assert "assert_scalar" not in program.graph_module.code
    ours, eager = program.module(), Function(use)
    for count, start in ((3, 0), (1 if dynamic else 3, 5), (3, LENGTH - 3)):
        inputs = (torch.randn(1, 2, count, 4), torch.tensor([start]))
        torch.testing.assert_close(ours(*inputs), eager(*inputs))
        for name, buffer in ours.named_buffers():
            torch.testing.assert_close(buffer, eager.get_buffer(name))


def copy_of_a_product_with_a_weight(m, rows, position):
    m.cache.narrow(2, read(position), 3).copy_(rows * m.weight)
    return m.cache * 2


def view_made_without_gradients(m, rows, position):
    with torch.no_grad():
        view = m.cache.view(2, LENGTH, 4)
    part = view.narrow(1, read(position), 3)
    m.cache.add_(1)
    return part * rows


def beside_a_branch(m, rows, position):
    part = m.table.narrow(0, read(position), 3)
    return part * torch.cond(position[0] > 4, lambda x: x * 2, lambda x: x + 1, (rows,))


def source_in_the_same_tensor(m, rows, position):
    m.cache.narrow(2, read(position), 3).copy_(m.cache[:, :, 1:4])
    return m.cache * rows.sum()


@pytest.mark.parametrize(
    "use",
    [
        copy_of_a_product_with_a_weight,
        view_made_without_gradients,
        beside_a_branch,
        source_in_the_same_tensor,
    ],
)
def test_programs_that_were_exported_with_gradients(use):
    inputs = (torch.randn(1, 2, 3, 4), torch.tensor([5]))
    program = keep_positions_in_tensors(torch.export.export(Function(use), inputs))
    assert not items(program)
    torch.testing.assert_close(program.module()(*inputs), Function(use)(*inputs))


def test_a_position_of_int32():
    program = keep_positions_in_tensors(export(slice_scatter, True, torch.int32))
    assert not items(program)
    inputs = (torch.randn(1, 2, 4, 4), torch.tensor([7], dtype=torch.int32))
    torch.testing.assert_close(program.module()(*inputs), Function(slice_scatter)(*inputs))


def may_be_cut(m, rows, position):
    start = read(position)
    return m.table[start : start + 5]


def is_returned(m, rows, position):
    start = read(position)
    return m.table.narrow(0, start, 3), start


OTHERS = {
    "depends on data": lambda m, rows, position: m.table[: read(position)],
    "may be negative": lambda m, rows, position: m.table.narrow(0, position[0].item(), 3),
    "may be cut": may_be_cut,
    "is returned": is_returned,
    "is a float": lambda m, rows, position: rows * rows.sum().item(),
    "scales floats": lambda m, rows, position: rows * read(position),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_numbers_stay(name):
    program = export(OTHERS[name], dynamic=False)
    assert keep_positions_in_tensors(program) is program


def test_one_unknown_use_keeps_all_uses_of_a_number_but_not_of_another_one():
    def both(m, rows, position):
        returned, start = read(position), read(position)
        return m.table.narrow(0, returned, 3) * m.table.narrow(0, start, 3), returned

    program = export(both, dynamic=False)
    kept = keep_positions_in_tensors(program)
    assert len(items(program)) == 2
    assert len(items(kept)) == 1
    inputs = (torch.randn(1, 2, 3, 4), torch.tensor([4]))
    product, start = kept.module()(*inputs)
    torch.testing.assert_close(product, Function(both)(*inputs)[0])
    assert start == 4


def decoder(write, m, rows, position):
    """One layer, as ExecuTorch's Llama has it."""
    start, count = read(position), rows.shape[2]
    torch._check(start + count <= LENGTH)
    query = rows * m.table.narrow(0, start, count)
    write(m, rows, position)
    mask = torch.ones(LENGTH, LENGTH).tril() > 0
    attention = nn.functional.scaled_dot_product_attention
    return attention(query, m.cache, m.cache, mask.narrow(0, start, count))


def lower(builder: str, write: Callable[..., Any]) -> bytes:
    program = export(partial(decoder, write), dynamic=True)
    partitioner = TensorRTPartitioner(builder=builder, full_graph=True)
    return bytes(finish(program, partitioner, planning=TensorRTMemoryPlanningPass()).buffer)


@pytest.mark.parametrize("write", sampled([index_copy, slice_scatter, ring], 3))
def test_a_decoder_is_one_engine_and_a_position_outside_its_cache_is_an_error(write):
    pte = lower("reference", write)
    assert len(inspect_program(pte)[0].delegates) == 1
    method = load_method(pte)
    eager = Function(partial(decoder, write))
    for count, start in ((5, 0), (1, 5), (LENGTH - 6, 6)):
        inputs = (torch.randn(1, 2, count, 4), torch.tensor([start]))
        torch.testing.assert_close(method.execute(inputs)[0], eager(*inputs))
    for start in (-1, LENGTH - 1, LENGTH):
        with pytest.raises(RuntimeError):
            method.execute((torch.randn(1, 2, 2, 4), torch.tensor([start])))


@pytest.mark.parametrize("write", [slice_scatter, one_row])
def test_tensorrt_rtx_writes_the_decoders_cache_in_place(write):
    (delegate,) = inspect_program(lower("tensorrt_rtx", write))[0].delegates
    assert delegate.engine is not None
    assert len(delegate.engine.aliases) == 1
