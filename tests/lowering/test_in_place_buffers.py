"""Which buffers an engine may write in place, as the whole program tells."""

from __future__ import annotations

import copy

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from tests.support.programs.kv_cache_models import Cache, Recorder, recorded
from tests.support.simulated_gpus import load_method
from trt_et import TensorRTPartitioner
from trt_et.conversion.operators.kv_cache import update_in_place
from trt_et.errors import OptionError
from trt_et.lowering.in_place_buffers import find_in_place_buffers
from trt_et.lowering.lowered_partition import unlift

SHAPE = (1, 2, 8, 4)
ONE, ROWS = torch.tensor([5]), torch.randn(1, 2, 1, 4)


def write(cache, position, new):
    cache.index_copy_(2, position, new)


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(SHAPE))


class Allowed(Base):
    def forward(self, position, rows):
        write(self.cache, position, rows)
        return self.cache * 2


class NewValueReadByCpu(Base):
    def forward(self, position, rows):
        write(self.cache, position, rows)
        return torch.cumsum(self.cache, 2)


class TwoCaches(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(SHAPE), persistent=False)

    def forward(self, position, rows):
        write(self.cache, position, rows)
        write(self.values, position, rows * 2)
        return self.cache + self.values


class OldValueReadByCpu(Base):
    def forward(self, position, rows):
        before = torch.cumsum(self.cache, 2)
        write(self.cache, position, rows)
        return self.cache * 2 + before


class OldValueReadByAnotherEngine(Base):
    """One that runs after the engine that writes: the operator between them is on the CPU."""

    def forward(self, position, rows):
        old = self.cache
        new = old.index_copy(2, position, rows)
        late = torch.cumsum(new, 2)
        result = old * 3 + late
        self.cache.copy_(new)
        return result


class OldValueReturned(Base):
    def forward(self, position, rows):
        before = self.cache.clone()
        write(self.cache, position, rows)
        return self.cache * 2, before


class NewValueReturned(Base):
    def forward(self, position, rows):
        write(self.cache, position, rows)
        return self.cache


class WrittenOnTheCpu(Base):
    def forward(self, position, rows):
        result = self.cache * 2
        self.cache.copy_(torch.cumsum(result, 2))
        return result + rows


class WrittenByTwoEngines(Base):
    def forward(self, position, rows):
        write(self.cache, position, rows)
        late = torch.cumsum(self.cache, 2)
        write(self.cache, position + 1, late[:, :, :1] * 2)
        return self.cache * 2


class ReadInABranch(Base):
    def forward(self, position, rows):
        old = self.cache
        new = old.index_copy(2, position, rows)
        read = torch.cond(rows.sum() > 0, lambda c: c * 2, lambda c: c * 3, (old,))
        self.cache.copy_(new)
        return read + new


class WrittenInABranch(Base):
    def forward(self, position, rows):
        def one(cache, position, new):
            return cache.index_copy(2, position, new)

        def other(cache, position, new):
            return cache.index_copy(2, position + 1, new)

        new = torch.cond(rows.sum() > 0, one, other, (self.cache, position, rows))
        self.cache.copy_(new)
        return new * 2


class OfTheCaller(nn.Module):
    """The cache is an argument; its new value is a result."""

    def forward(self, position, cache):
        return cache.index_copy(2, position, torch.ones(1, 2, 1, 4))


class ArgumentWrittenInPlace(nn.Module):
    def forward(self, position, cache):
        write(cache, position, torch.ones(1, 2, 1, 4))
        return cache * 2


def updates(model: nn.Module, *inputs: torch.Tensor, **options) -> int:
    """How many outputs may be written in place, over all partitions."""
    requests, _ = recorded(model, inputs, excluded_ops=[torch.ops.aten.cumsum], **options)
    assert requests
    return sum(len(request.lowered.aliased_outputs) for request in requests)


@pytest.mark.parametrize(
    ("model", "expected"), [(Allowed(), 1), (NewValueReadByCpu(), 1), (TwoCaches(), 2)]
)
def test_a_buffer_whose_old_value_nothing_else_reads_may_be_written_in_place(model, expected):
    requests, _ = recorded(model, (ONE, ROWS), excluded_ops=[torch.ops.aten.cumsum])
    (request,) = [each for each in requests if each.lowered.aliased_outputs]
    assert len(request.lowered.aliased_outputs) == expected
    inputs = {binding.name: binding for binding in request.lowered.inputs}
    outputs = {binding.name: binding for binding in request.lowered.outputs}
    for update in request.lowered.aliased_outputs:
        assert inputs[update.buffer].shape == outputs[update.value].shape == SHAPE
        assert request.lowered.names[update.buffer].startswith("b_")
        assert update.refuses_negative_indices
    assert len({update.buffer for update in request.lowered.aliased_outputs}) == expected
    module = unlift(request.lowered.program)
    assert len(update_in_place(module, request.lowered.aliased_outputs)) == expected


NOT = [
    OldValueReadByCpu(),
    OldValueReadByAnotherEngine(),
    OldValueReturned(),
    NewValueReturned(),
    WrittenOnTheCpu(),
    WrittenByTwoEngines(),
    ReadInABranch(),
    WrittenInABranch(),
]


@pytest.mark.parametrize("model", NOT, ids=lambda model: type(model).__name__)
def test_a_buffer_that_something_else_needs_is_not_written_in_place(model):
    eager = copy.deepcopy(model)
    requests, pte = recorded(model, (ONE, ROWS), excluded_ops=[torch.ops.aten.cumsum])
    assert requests
    for request in requests:
        assert (
            update_in_place(unlift(request.lowered.program), request.lowered.aliased_outputs) == ()
        )
    # What one partition reads twice is the builder's to refuse: the copy may be in it, or outside.
    if not isinstance(model, OldValueReturned):
        assert not any(request.lowered.aliased_outputs for request in requests)
    method = load_method(pte)
    for position in (5, 2):
        call = (torch.tensor([position]), torch.randn(1, 2, 1, 4))
        expected = eager(*call)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for have, want in zip(method.execute([*call]), expected, strict=True):
            torch.testing.assert_close(have, want)


@pytest.mark.parametrize("model", [OfTheCaller(), ArgumentWrittenInPlace()])
def test_what_the_caller_passes_is_not_written_in_place(model):
    assert updates(model, ONE, torch.zeros(SHAPE)) == 0


def test_an_argument_with_the_name_of_a_buffer_is_not_taken_for_it():
    class SameName(Base):
        def forward(self, position, cache):
            write(cache, position, self.cache[:, :, :1])
            return cache * 2

    program = torch.export.export(SameName(), (ONE, torch.zeros(SHAPE))).run_decompositions({})
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    assert find_in_place_buffers(program, [nodes]) == [()]


def test_positions_of_index_put_may_count_from_the_end():
    def put(cache, position, new):
        cache[:, :, position] = new

    (request,), _ = recorded(Cache(put, SHAPE), (ONE, ROWS))
    (update,) = request.lowered.aliased_outputs
    assert not update.refuses_negative_indices


def test_it_can_be_turned_off():
    assert updates(Allowed(), ONE, ROWS) == 1
    assert updates(Allowed(), ONE, ROWS, state_in_place=False) == 0
    with pytest.raises(OptionError, match="state_in_place is 'no'"):
        TensorRTPartitioner(builder="reference", state_in_place="no")


def test_methods_that_share_a_cache_may_each_write_it_in_place():
    class Prompt(Allowed):
        def forward(self, position, rows):
            write(self.cache, position, rows)
            return self.cache * 3

    token, prompt = Allowed(), Prompt()
    prompt.cache = token.cache
    recorder = Recorder()
    with torch.no_grad():
        programs = {
            "token": torch.export.export(token, (ONE, ROWS)),
            "prompt": torch.export.export(prompt, (ONE, ROWS)),
        }
        to_edge_transform_and_lower(
            programs, partitioner=[TensorRTPartitioner(builder=recorder, progress=False)]
        )
    assert [len(request.lowered.aliased_outputs) for request in recorder.requests] == [1, 1]
