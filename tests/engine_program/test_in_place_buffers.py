"""Which buffers an engine may write in place, as the whole program tells."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from tests.support.lowering import reference
from tests.support.models import Function
from tests.support.programs.kv_cache_models import Recorder, recorded
from tests.support.simulated_gpus import check
from trt_et import TensorRTPartitioner
from trt_et.conversion.operators.caches import update_in_place
from trt_et.engine_program.in_place_buffers import find_in_place_buffers
from trt_et.engine_program.program import unlift
from trt_et.engines import BuildRequest
from trt_et.errors import OptionError

SHAPE = (1, 2, 8, 4)
ONE, ROWS = torch.tensor([5]), torch.randn(1, 2, 1, 4)


def write(cache, position, new):
    cache.index_copy_(2, position, new)


class Stateful(nn.Module):
    """Computes a function of its cache, a position and rows."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("cache", torch.zeros(SHAPE))

    def forward(self, position, rows):
        return self.function(self.cache, position, rows)


class TwoCaches(Stateful):
    def __init__(self) -> None:
        super().__init__(None)
        self.register_buffer("values", torch.zeros(SHAPE), persistent=False)

    def forward(self, position, rows):
        write(self.cache, position, rows)
        write(self.values, position, rows * 2)
        return self.cache + self.values


def doubled(cache, position, rows):
    write(cache, position, rows)
    return cache * 2


def new_value_read_by_the_cpu(cache, position, rows):
    write(cache, position, rows)
    return torch.cumsum(cache, 2)


def old_value_read_by_the_cpu(cache, position, rows):
    before = torch.cumsum(cache, 2)
    write(cache, position, rows)
    return cache * 2 + before


def old_value_read_by_another_engine(cache, position, rows):
    """One that runs after the engine that writes: the operator between them is on the CPU."""
    new = cache.index_copy(2, position, rows)
    late = torch.cumsum(new, 2)
    result = cache * 3 + late
    cache.copy_(new)
    return result


def old_value_returned(cache, position, rows):
    before = cache.clone()
    write(cache, position, rows)
    return cache * 2, before


def new_value_returned(cache, position, rows):
    write(cache, position, rows)
    return cache


def written_on_the_cpu(cache, position, rows):
    result = cache * 2
    cache.copy_(torch.cumsum(result, 2))
    return result + rows


def written_by_two_engines(cache, position, rows):
    write(cache, position, rows)
    late = torch.cumsum(cache, 2)
    write(cache, position + 1, late[:, :, :1] * 2)
    return cache * 2


def read_in_a_branch(cache, position, rows):
    new = cache.index_copy(2, position, rows)
    read = torch.cond(rows.sum() > 0, lambda c: c * 2, lambda c: c * 3, (cache,))
    cache.copy_(new)
    return read + new


def written_in_a_branch(cache, position, rows):
    def one(cache, position, rows):
        return cache.index_copy(2, position, rows)

    new = torch.cond(rows.sum() > 0, one, lambda c, p, r: one(c, p + 1, r), (cache, position, rows))
    cache.copy_(new)
    return new * 2


def asked(model: nn.Module, *inputs: torch.Tensor, **options) -> tuple[list[BuildRequest], bytes]:
    """What is asked of a builder, if cumsum stays on the CPU; and the program."""
    requests, pte = recorded(model, inputs, excluded_ops=[torch.ops.aten.cumsum], **options)
    assert requests
    return requests, pte


def updates(model: nn.Module, *inputs: torch.Tensor, **options) -> int:
    """How many outputs may be written in place, over all partitions."""
    requests, _ = asked(model, *inputs, **options)
    return sum(len(request.program.aliased_outputs) for request in requests)


@pytest.mark.parametrize(
    ("model", "expected"),
    [(Stateful(doubled), 1), (Stateful(new_value_read_by_the_cpu), 1), (TwoCaches(), 2)],
)
def test_a_buffer_whose_old_value_nothing_else_reads_may_be_written_in_place(model, expected):
    requests, _ = asked(model, ONE, ROWS)
    (request,) = [each for each in requests if each.program.aliased_outputs]
    inputs = {binding.name: binding for binding in request.program.inputs}
    outputs = {binding.name: binding for binding in request.program.outputs}
    for update in request.program.aliased_outputs:
        assert inputs[update.buffer].shape == outputs[update.value].shape == SHAPE
        assert request.program.names[update.buffer].startswith("b_")
        assert update.refuses_negative_indices
    assert len({update.buffer for update in request.program.aliased_outputs}) == expected
    module = unlift(request.program.exported)
    assert len(update_in_place(module, request.program.aliased_outputs)) == expected


@pytest.mark.parametrize(
    "function",
    [
        old_value_read_by_the_cpu,
        old_value_read_by_another_engine,
        old_value_returned,
        new_value_returned,
        written_on_the_cpu,
        written_by_two_engines,
        read_in_a_branch,
        written_in_a_branch,
    ],
)
def test_a_buffer_that_something_else_needs_is_not_written_in_place(function):
    requests, pte = asked(Stateful(function), ONE, ROWS)
    for request in requests:
        aliased = request.program.aliased_outputs
        assert update_in_place(unlift(request.program.exported), aliased) == ()
        # What one partition reads twice is the builder's to refuse: the copy may be in it, or not.
        assert not aliased or function is old_value_returned
    calls = [(torch.tensor([position]), torch.randn(1, 2, 1, 4)) for position in (5, 2)]
    check(pte, Stateful(function), *calls)


@pytest.mark.parametrize(
    "function",
    [
        lambda position, cache: cache.index_copy(2, position, ROWS),
        lambda position, cache: doubled(cache, position, ROWS),
    ],
)
def test_what_the_caller_passes_is_not_written_in_place(function):
    assert updates(Function(function), ONE, torch.zeros(SHAPE)) == 0


def test_an_argument_with_the_name_of_a_buffer_is_not_taken_for_it():
    class SameName(Stateful):
        def forward(self, position, cache):
            return doubled(cache, position, self.cache[:, :, :1])

    model, inputs = SameName(None), (ONE, torch.zeros(SHAPE))
    program = torch.export.export(model, inputs).run_decompositions({})
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    assert find_in_place_buffers(program, [nodes]) == [()]


def test_positions_of_index_put_may_count_from_the_end():
    def put(cache, position, rows):
        cache[:, :, position] = rows
        return cache * 2

    (request,), _ = asked(Stateful(put), ONE, ROWS)
    (update,) = request.program.aliased_outputs
    assert not update.refuses_negative_indices


def test_it_can_be_turned_off():
    assert updates(Stateful(doubled), ONE, ROWS, state_in_place=False) == 0
    with pytest.raises(OptionError, match="state_in_place is 'no'"):
        reference(state_in_place="no")


def test_methods_that_share_a_cache_may_each_write_it_in_place():
    token, prompt = Stateful(doubled), Stateful(lambda *inputs: doubled(*inputs) + 1)
    prompt.cache = token.cache
    recorder = Recorder()
    with torch.no_grad():
        programs = {
            "token": torch.export.export(token, (ONE, ROWS)),
            "prompt": torch.export.export(prompt, (ONE, ROWS)),
        }
        partitioner = TensorRTPartitioner(builder=recorder, progress=False)
        to_edge_transform_and_lower(programs, partitioner=[partitioner])
    assert [len(request.program.aliased_outputs) for request in recorder.requests] == [1, 1]
