"""KV caches: which updates are made in place, and which must not be."""

from __future__ import annotations

import copy

import pytest
import tensorrt_rtx as trt
import torch
from torch.export import Dim

from tests.support.lowering import blobs, lower
from tests.support.programs.kv_cache_models import (
    BATCH,
    HEADS,
    LENGTH,
    SHAPE,
    WIDTH,
    Cache,
    recorded,
)
from tests.support.programs.kv_cache_updates import (
    FORMS,
    LONG,
    ONE,
    RUN,
    add_to_it,
    aliases,
    calls,
    copy_rows,
    copy_run,
    outputs_of,
    put,
    recording,
    rewritten,
    rows,
)
from tests.support.sampled import sampled
from trt_et.conversion.operators.caches import write_rows
from trt_et.engine_info import Alias, decode_blob
from trt_et.engines import BuildRequest
from trt_et.engines import serialize as engines

aten = torch.ops.aten


@pytest.mark.parametrize("form", sampled(FORMS, 3))
def test_a_run_of_rows_is_written_in_place_with_the_values_of_eager(form):
    _, position, new = FORMS[form]
    model, request = recording(form)
    module, (alias,) = rewritten(request)
    assert calls(module).count(write_rows) == 1
    assert not {aten.index_put.default, aten.slice_scatter.default} & set(calls(module))
    cache = next(n for n in module.graph.nodes if n.name == alias.input)
    assert [user.target for user in cache.users] == [write_rows]
    check_layer(request, 3 if new.shape[2:3] == (3,) else 1)
    if form == "ExecuTorch's Llama":  # Its position is computed on the CPU.
        return
    eager = copy.deepcopy(model)
    expected = eager(position, new)
    assert not torch.equal(eager.cache, model.cache)
    (value, result) = outputs_of(request, model, position, new).values()
    torch.testing.assert_close(value, eager.cache, rtol=0, atol=0)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


def check_layer(request: BuildRequest, count: int) -> None:
    """TensorRT gets its layer, and the blob declares it."""
    built = engines.build_network(request)
    every = [built.network.get_layer(index) for index in range(built.network.num_layers)]
    (layer,) = (layer for layer in every if layer.type == trt.LayerType.KV_CACHE_UPDATE)
    cache, update, starts = (layer.get_input(i) for i in range(3))
    assert cache.is_network_input
    assert layer.get_output(0).is_network_output
    assert tuple(cache.shape) == SHAPE
    assert tuple(update.shape) == (BATCH, HEADS, count, WIDTH)
    assert (tuple(starts.shape), starts.dtype) == ((BATCH,), trt.int32)
    assert built.aliases == (Alias(layer.get_output(0).name, cache.name, "kv_cache_update"),)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_engines_are_built_for_every_dtype_and_gpu(dtype):
    program = torch.export.export(Cache(put, dtype=dtype), (ONE, rows(1, dtype)))
    capabilities = ["8.0", "8.6", "8.9", "12.0"]
    capabilities += ["7.5"] * (dtype is not torch.bfloat16)
    pte = lower(program, builder="tensorrt_rtx", compute_capabilities=capabilities)
    (blob,) = blobs(pte)
    decoded = decode_blob(blob)
    assert decoded.magic == b"TR02"
    (alias,) = decoded.info.aliases
    found = {b.name: (b.dtype, b.shape, b.is_input) for b in decoded.info.bindings}
    name = str(dtype).removeprefix("torch.")
    assert found[alias.input] == (name, SHAPE, True)
    assert found[alias.output] == (name, SHAPE, False)


EVERY = slice(None)


def put_at(index):
    """Write to an index, which is computed from the position and the rows."""

    def put(cache, position, new):
        cache[index(position, new)] = new

    return put


def copy_to(positions, dim=2):
    """Write along a dimension to positions that are computed from one."""

    def copy(cache, position, new):
        cache.index_copy_(dim, positions(position), new)

    return copy


def put_rows_at(positions):
    return put_at(lambda position, new: (EVERY, EVERY, positions(position, new)))


put_unknown_run = put_rows_at(lambda p, new: torch.arange(new.shape[2]) + p)


def put_at_head(cache, position, new):
    cache[:, position * 0 + 1, position] = new[:, 0]


def slice_with_conversion(cache, position, new):
    cache[:, :, 2:5] = new.half()


def write_twice(cache, position, new):
    cache.index_copy_(2, position, new)
    cache.index_copy_(2, position + 1, new)


def read_before(cache, position, new):
    before = cache.sum()
    cache.index_copy_(2, position, new * before)


def read_rows_of_slice(cache, position, new):
    old = cache[:, :, 2:5] * 2
    cache[:, :, 2:5] = new + old


def copy_sum(cache, position, new):
    cache.copy_(cache.index_copy(2, position, new) + 1)


COLUMN = rows(1, torch.float32, BATCH, HEADS, LENGTH, 1)
NOT_A_RUN = {
    "positions from the caller": (put, RUN, rows(3)),
    "index_copy of positions from the caller": (copy_rows, RUN, rows(3)),
    "a run that may begin below 0": (put_unknown_run, ONE, rows(3)),
    "a run that begins below 0": (put_rows_at(lambda *_: torch.arange(-1, 2)), ONE, rows(3)),
    "every other position": (put_rows_at(lambda *_: torch.arange(0, 6, 2)), ONE, rows(3)),
    "listed positions": (put_rows_at(lambda *_: torch.tensor([0, 2, 1])), ONE, rows(3)),
    "a scaled run": (copy_to(lambda p: torch.arange(3) * 2 + p), torch.tensor([1]), rows(3)),
    "a sum of runs": (copy_to(lambda _: torch.arange(3) + torch.arange(3)), ONE, rows(3)),
    "a run with a factor": (
        copy_to(lambda p: torch.add(p, torch.arange(3), alpha=2)),
        *(torch.tensor([1]), rows(3)),
    ),
    "a mask": (put_rows_at(lambda *_: torch.arange(LENGTH) == 3), ONE, rows()),
    "positions of one head": (put_at_head, ONE, rows()),
    "a slice of the last dimension": (put_at(lambda *_: (..., slice(1, 2))), ONE, COLUMN),
    "every other row of a slice": (put_rows_at(lambda *_: slice(0, 6, 2)), ONE, rows(3)),
    "a slice of another dtype": (slice_with_conversion, ONE, rows(3)),
    "two updates": (write_twice, ONE, rows()),
    "the old value is read": (read_before, ONE, rows()),
    "the old rows are read": (read_rows_of_slice, ONE, rows(3)),
    "not rows": (add_to_it, ONE, LONG),
    "the update is not the new value": (copy_sum, ONE, rows()),
}


@pytest.mark.parametrize("case", sampled(NOT_A_RUN, 3))
def test_whatever_is_not_surely_a_run_of_rows_is_left_as_it_is(case):
    write, position, new = NOT_A_RUN[case]
    requests, _ = recorded(Cache(write), (position, new))
    assert requests
    assert aliases(requests) == []
    for request in requests:
        assert write_rows not in calls(rewritten(request)[0])


ANOTHER_DIMENSION = {
    "columns": (put_at(lambda p, _: (..., p)), SHAPE, ONE - 3, COLUMN),
    "heads": (copy_to(lambda _: torch.arange(3), 1), SHAPE, ONE, LONG),
    "batches": (copy_to(lambda _: torch.arange(2), 0), SHAPE, ONE, LONG),
    "the last of three": (copy_rows, (HEADS, WIDTH, LENGTH), ONE * 0, torch.ones(HEADS, WIDTH, 1)),
    "the third of five": (
        *(copy_rows, (BATCH, HEADS, LENGTH, WIDTH, 2), ONE * 0),
        torch.ones(BATCH, HEADS, 1, WIDTH, 2),
    ),
    "ahead of heads": (
        *(put_at(lambda p, _: (EVERY, p)), (BATCH, LENGTH, HEADS, WIDTH), ONE),
        rows(1, torch.float32, BATCH, 1, HEADS, 4),
    ),
}


@pytest.mark.parametrize("case", sampled(ANOTHER_DIMENSION, 3))
def test_one_position_of_any_dimension_is_written_in_place(case):
    write, shape, position, new = ANOTHER_DIMENSION[case]
    requests, _ = recorded(Cache(write, shape), (position, new))
    assert len(aliases(requests)) == 1


def test_integers_are_left_as_they_are():
    new = torch.ones(BATCH, HEADS, 1, WIDTH, dtype=torch.int32)
    requests, _ = recorded(Cache(copy_rows, SHAPE, torch.int32), (ONE * 0, new))
    assert [update for request in requests for update in request.program.aliased_outputs]
    assert aliases(requests) == []


def test_what_eager_refuses_or_ignores_is_not_written():
    """Rows beyond the cache: eager raises an error; TensorRT's layer writes none of them."""
    cache, new = torch.zeros(SHAPE), torch.ones(BATCH, HEADS, 1, WIDTH)
    for start in (-1, LENGTH):
        starts = torch.tensor([start, 2], dtype=torch.int32)
        found = write_rows(cache, new, starts)
        assert not found[0].any()
        assert found[1].sum() == found[1, :, 2].sum() == HEADS * WIDTH


def test_a_prompt_of_any_length_and_a_token_are_one_engine():
    model = Cache(copy_run)
    dynamic = {"position": None, "rows": {2: Dim("count", min=1, max=6)}}
    options = {"dynamic_shapes": dynamic}
    (request,), _ = recorded(model, (ONE, rows(3)), **options)
    assert len(aliases([request])) == 1
    program = torch.export.export(model, (ONE, rows(3)), dynamic_shapes=dynamic)
    (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
    assert blob[:4] == b"TR02"


def test_the_rows_of_a_dynamic_index_put_are_not_known_to_be_a_run():
    dynamic = {"position": {0: (count := Dim("count", min=1, max=6))}, "rows": {2: count}}
    requests, _ = recorded(Cache(copy_rows), (RUN, rows(3)), dynamic_shapes=dynamic)
    assert aliases(requests) == []
    put_requests, _ = recorded(
        Cache(put_unknown_run),
        (ONE, rows(3)),
        dynamic_shapes={"position": None, "rows": {2: count}},
    )
    assert aliases(put_requests) == []
