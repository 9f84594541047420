"""KV caches: which updates are made in place, which must not be, and what TensorRT is given."""

from __future__ import annotations

import copy
import functools
import logging
from dataclasses import replace

import pytest
import tensorrt_rtx as trt
import torch
import transformers as tf
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import Dim
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache
from typer.testing import CliRunner

from tests.support.kv_cache_models import BATCH, HEADS, LENGTH, SHAPE, WIDTH, Cache, recorded
from tests.support.lowering import blobs, lower
from trt_et import TensorRTPartitioner
from trt_et.builders import BuildRequest, tensorrt_rtx
from trt_et.builders import serialize as engines
from trt_et.cli import app
from trt_et.conversion import prepare
from trt_et.conversion.rewrites.index_put import broadcast_index_put_values
from trt_et.conversion.rewrites.kv_cache_update import update_in_place, write_rows
from trt_et.engine_info import Alias, decode_blob
from trt_et.errors import BuildCancelled, BuilderError, OptionError
from trt_et.inspection import inspect_program
from trt_et.lowering.in_place_buffers import InPlaceBuffer
from trt_et.lowering.lowered_partition import unlift
from trt_et.scheduler.engine_key import request_digest

aten = torch.ops.aten

ONE = torch.tensor([5])
RUN = torch.arange(3)


def rows(count: int = 1, dtype: torch.dtype = torch.float32, *shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(shape or (BATCH, HEADS, count, WIDTH)).to(dtype)


def put(cache, position, new):
    cache[:, :, position] = new


def put_at_scalar(cache, position, new):
    aten.index_put_(cache, [None, None, position], new)


def copy_rows(cache, position, new):
    cache.index_copy_(2, position, new)


def copy_run(cache, position, new):
    cache.index_copy_(2, torch.arange(new.shape[2]) + position, new)


def copy_run_of_several(cache, position, new):
    cache.index_copy_(2, position + (1 + torch.arange(new.shape[2])) + position[0], new)


def executorch_llama(cache, position, new):
    """What ExecuTorch's own Llama does with dynamic shapes."""
    start = position[0].item()
    torch._check_is_size(start)
    torch._check(start < LENGTH)
    cache.index_copy_(2, torch.arange(new.shape[2]) + start, new)


def put_constant_run(cache, position, new):
    cache[:, :, torch.arange(2, 5)] = new


def put_listed_run(cache, position, new):
    cache[:, :, torch.tensor([3, 4, 5])] = new


def slice_first(cache, position, new):
    cache[:, :, : new.shape[2]] = new


def slice_middle(cache, position, new):
    cache[:, :, 2:5] = new


def slice_last(cache, position, new):
    cache[:, :, -3:] = new


def scatter_slice(cache, position, new):
    cache.copy_(torch.slice_scatter(cache, new, 2, 1, 4))


def slice_all_batches(cache, position, new):
    cache[:, :, 2:5] = new[:1]


FORMS = {
    "one position": (put, ONE, rows()),
    "one position, int32": (put, ONE.int(), rows()),
    "one position without a dimension": (put_at_scalar, torch.tensor(5), rows()[:, :, 0]),
    "one position from the end": (put, torch.tensor([-2]), rows()),
    "rows for all batches": (put, ONE, rows(1, torch.float32, HEADS, 1, WIDTH)),
    "one number for all": (put, ONE, rows(1, torch.float32, 1)),
    "index_copy": (copy_rows, ONE, rows()),
    "index_copy of a run": (copy_run, ONE, rows(3)),
    "index_copy of a sum": (copy_run_of_several, torch.tensor([2]), rows(3)),
    "ExecuTorch's Llama": (executorch_llama, ONE, rows(3)),
    "a constant run": (put_constant_run, ONE, rows(3)),
    "a listed run": (put_listed_run, ONE, rows(3)),
    "the first rows": (slice_first, ONE, rows(3)),
    "a slice": (slice_middle, ONE, rows(3)),
    "the last rows": (slice_last, ONE, rows(3)),
    "a slice for all batches": (slice_all_batches, ONE, rows(3)),
    "slice_scatter": (scatter_slice, ONE, rows(3)),
}


@functools.cache
def recording(form: str) -> tuple[Cache, BuildRequest]:
    write, position, new = FORMS[form]
    model = Cache(write)
    (request,), _ = recorded(model, (position, new))
    return model, request


def rewritten(request: BuildRequest) -> tuple[torch.fx.GraphModule, tuple[Alias, ...]]:
    module = unlift(request.lowered.program)
    broadcast_index_put_values(module)
    return module, update_in_place(module, request.lowered.aliased_outputs)


def aliases(requests: list[BuildRequest]) -> list[Alias]:
    return [alias for request in requests for alias in rewritten(request)[1]]


def outputs_of(
    request: BuildRequest, model: nn.Module, *inputs: torch.Tensor
) -> dict[str, torch.Tensor]:
    """What the rewritten partition computes, by the names of the nodes in the program."""
    module, _ = rewritten(request)
    values = {"position": inputs[0], "rows": inputs[1], "b_cache": model.cache.clone()}
    names = request.lowered.names
    args = [values[names[binding.name]] for binding in request.lowered.inputs]
    results = request.lowered.program.graph.output_node().args[0]
    found = module(*args)
    return {names[node.name]: value for node, value in zip(results, found, strict=True)}


def calls(module: torch.fx.GraphModule) -> list[object]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("form", FORMS)
def test_a_run_of_rows_is_written_in_place_with_the_values_of_eager(form):
    _, position, new = FORMS[form]
    model, request = recording(form)
    module, (alias,) = rewritten(request)
    assert calls(module).count(write_rows) == 1
    assert not {aten.index_put.default, aten.slice_scatter.default} & set(calls(module))
    cache = next(n for n in module.graph.nodes if n.name == alias.input)
    assert [user.target for user in cache.users] == [write_rows]
    if form == "ExecuTorch's Llama":  # Its position is computed on the CPU.
        return
    eager = copy.deepcopy(model)
    expected = eager(position, new)
    assert not torch.equal(eager.cache, model.cache)
    (value, result) = outputs_of(request, model, position, new).values()
    torch.testing.assert_close(value, eager.cache, rtol=0, atol=0)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_tensorrt_gets_its_layer_and_the_blob_declares_it(form):
    _, _, new = FORMS[form]
    _, request = recording(form)
    built = engines.build_network(request)
    (layer,) = layers(built.network, trt.LayerType.KV_CACHE_UPDATE)
    cache, update, starts = (layer.get_input(i) for i in range(3))
    assert cache.is_network_input
    assert layer.get_output(0).is_network_output
    assert tuple(cache.shape) == SHAPE
    count = 3 if new.shape[2:3] == (3,) else 1
    assert tuple(update.shape) == (BATCH, HEADS, count, WIDTH)
    assert (tuple(starts.shape), starts.dtype) == ((BATCH,), trt.int32)
    assert built.aliases == (Alias(layer.get_output(0).name, cache.name, "kv_cache_update"),)


def layers(net, kind) -> list:
    every = [net.get_layer(index) for index in range(net.num_layers)]
    return [layer for layer in every if layer.type == kind]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_engines_are_built_for_every_dtype_and_gpu(dtype):
    program = torch.export.export(Cache(put, dtype=dtype), (ONE, rows(1, dtype)))
    capabilities = ["7.5", "8.0", "8.6", "8.9", "12.0"] if dtype is not torch.bfloat16 else ["8.0"]
    for capability in capabilities:
        pte = lower(program, builder="tensorrt_rtx", compute_capabilities=[capability])
        (blob,) = blobs(pte)
        decoded = decode_blob(blob)
        assert decoded.magic == b"TR02"
        (alias,) = decoded.info.aliases
        found = {b.name: (b.dtype, b.shape, b.is_input) for b in decoded.info.bindings}
        name = str(dtype).removeprefix("torch.")
        assert found[alias.input] == (name, SHAPE, True)
        assert found[alias.output] == (name, SHAPE, False)


def put_unknown_run(cache, position, new):
    cache[:, :, torch.arange(new.shape[2]) + position] = new


def put_negative_run(cache, position, new):
    cache[:, :, torch.arange(-1, 2)] = new


def put_every_other(cache, position, new):
    cache[:, :, torch.arange(0, 6, 2)] = new


def put_listed(cache, position, new):
    cache[:, :, torch.tensor([0, 2, 1])] = new


def put_scaled(cache, position, new):
    cache.index_copy_(2, torch.arange(3) * 2 + position, new)


def put_sum_of_runs(cache, position, new):
    cache.index_copy_(2, torch.arange(3) + torch.arange(3), new)


def put_scaled_start(cache, position, new):
    cache.index_copy_(2, torch.add(position, torch.arange(3), alpha=2), new)


def put_masked(cache, position, new):
    cache[:, :, torch.arange(LENGTH) == 3] = new


def put_at_head(cache, position, new):
    cache[:, position * 0 + 1, position] = new[:, 0]


def put_columns(cache, position, new):
    cache[:, :, :, position] = new


def copy_heads(cache, position, new):
    cache.index_copy_(1, torch.arange(3), new)


def copy_batches(cache, position, new):
    cache.index_copy_(0, torch.arange(2), new)


def slice_columns(cache, position, new):
    cache[:, :, :, 1:2] = new


def slice_every_other(cache, position, new):
    cache[:, :, 0:6:2] = new


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


def add_to_it(cache, position, new):
    cache.add_(new)


def copy_sum(cache, position, new):
    cache.copy_(cache.index_copy(2, position, new) + 1)


LONG = rows(LENGTH)
COLUMN = rows(1, torch.float32, BATCH, HEADS, LENGTH, 1)
NOT_A_RUN = {
    "positions from the caller": (put, RUN, rows(3)),
    "index_copy of positions from the caller": (copy_rows, RUN, rows(3)),
    "a run that may begin below 0": (put_unknown_run, ONE, rows(3)),
    "a run that begins below 0": (put_negative_run, ONE, rows(3)),
    "every other position": (put_every_other, ONE, rows(3)),
    "listed positions": (put_listed, ONE, rows(3)),
    "a scaled run": (put_scaled, torch.tensor([1]), rows(3)),
    "a sum of runs": (put_sum_of_runs, ONE, rows(3)),
    "a run with a factor": (put_scaled_start, torch.tensor([1]), rows(3)),
    "a mask": (put_masked, ONE, rows()),
    "positions of one head": (put_at_head, ONE, rows()),
    "positions of columns": (put_columns, ONE - 3, COLUMN),
    "positions of heads": (copy_heads, ONE, LONG),
    "positions of batches": (copy_batches, ONE, LONG),
    "a slice of the last dimension": (slice_columns, ONE, COLUMN),
    "every other row of a slice": (slice_every_other, ONE, rows(3)),
    "a slice of another dtype": (slice_with_conversion, ONE, rows(3)),
    "two updates": (write_twice, ONE, rows()),
    "the old value is read": (read_before, ONE, rows()),
    "the old rows are read": (read_rows_of_slice, ONE, rows(3)),
    "not rows": (add_to_it, ONE, LONG),
    "the update is not the new value": (copy_sum, ONE, rows()),
}


@pytest.mark.parametrize("case", NOT_A_RUN)
def test_whatever_is_not_surely_a_run_of_rows_is_left_as_it_is(case):
    write, position, new = NOT_A_RUN[case]
    requests, _ = recorded(Cache(write), (position, new))
    assert requests
    assert aliases(requests) == []
    for request in requests:
        assert write_rows not in calls(rewritten(request)[0])


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((HEADS, WIDTH, LENGTH), torch.float32),
        ((BATCH, HEADS, LENGTH, WIDTH, 2), torch.float32),
        (SHAPE, torch.int32),
    ],
)
def test_caches_that_the_layer_does_not_take_are_left_as_they_are(shape, dtype):
    new = torch.ones(*shape[:2], 1, *shape[3:], dtype=dtype)
    requests, _ = recorded(Cache(copy_rows, shape, dtype), (ONE * 0, new))
    assert [update for request in requests for update in request.lowered.aliased_outputs]
    assert aliases(requests) == []


def test_positions_ahead_of_heads_are_left_as_they_are():
    """``[batch, positions, heads, width]``: the cache would not be an input of its own."""

    def write(cache, position, new):
        cache[:, position] = new

    shape = (BATCH, LENGTH, HEADS, WIDTH)
    requests, _ = recorded(Cache(write, shape), (ONE, rows(1, torch.float32, BATCH, 1, HEADS, 4)))
    assert aliases(requests) == []


@pytest.mark.parametrize("case", ["added to what is there", "two indices"])
def test_calls_that_no_partition_has_today_are_not_written_in_place(case):
    """Torch-TensorRT's converter refuses the one, torch the other's rows; another might not."""
    (request,), _ = recorded(Cache(put), (ONE, rows()))
    module = unlift(request.lowered.program)
    broadcast_index_put_values(module)
    (node,) = (n for n in module.graph.nodes if n.target is aten.index_put.default)
    cache, (*_, index), values = node.args
    node.args = {
        "added to what is there": (cache, [None, None, index], values, True),
        "two indices": (cache, [None, index, index], values),
    }[case]
    assert update_in_place(module, request.lowered.aliased_outputs) == ()


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


# Falling back.


def built(caplog, model=None) -> tuple[bytes, str]:
    program = torch.export.export(model or Cache(put), (ONE, rows()))
    with caplog.at_level(logging.WARNING, "trt_et"):
        (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
    return bytes(blob), caplog.text


def test_a_tensorrt_without_the_layer_builds_as_before(caplog, monkeypatch):
    program = torch.export.export(Cache(put), (ONE, rows()))
    lower(program, builder="tensorrt_rtx")  # Torch-TensorRT is loaded.
    monkeypatch.setattr(
        "trt_et.conversion.converters.kv_cache_update.has_cache_update_layer", lambda: False
    )
    blob, said = built(caplog)
    assert (blob[:4], decode_blob(blob).info.aliases) == (b"TR01", ())
    assert "in place" not in said


def test_a_layer_that_tensorrt_refuses_is_left_out(caplog, monkeypatch):
    monkeypatch.setattr(trt.INetworkDefinition, "add_kv_cache_update", lambda *_: None)
    blob, said = built(caplog)
    assert (blob[:4], decode_blob(blob).info.aliases) == (b"TR01", ())
    assert "no engine that writes state in place" in said
    assert "makes no cache update of write_rows" in said


def test_a_build_that_fails_with_the_layer_is_repeated_without(caplog, monkeypatch):
    serialize = tensorrt_rtx.serialize
    tried = []

    def refusing(self, *args, **kwargs):
        tried.append(self.aliases)
        if self.aliases:
            raise BuilderError("Myelin says no")
        return serialize(self, *args, **kwargs)

    monkeypatch.setattr(tensorrt_rtx, "serialize", refusing)
    blob, said = built(caplog)
    assert blob[:4] == b"TR01"
    assert [len(each) for each in tried] == [1, 0]
    assert "Myelin says no" in said


def test_a_build_that_fails_either_way_says_why_once(monkeypatch):
    def refusing(self, *args, **kwargs):
        raise BuilderError(f"refused with {len(self.aliases)}")

    monkeypatch.setattr(tensorrt_rtx, "serialize", refusing)
    program = torch.export.export(Cache(put), (ONE, rows()))
    with pytest.raises(BuilderError, match="refused with 0"):
        lower(program, builder="tensorrt_rtx")


def test_a_build_that_fails_with_nothing_in_place_is_not_repeated(monkeypatch, caplog):
    tried = []

    def refusing(self, *args, **kwargs):
        tried.append(self.aliases)
        raise BuilderError("Myelin says no")

    monkeypatch.setattr(tensorrt_rtx, "serialize", refusing)
    program = torch.export.export(Cache(add_to_it), (ONE, LONG))
    with pytest.raises(BuilderError, match="Myelin says no"):
        lower(program, builder="tensorrt_rtx")
    assert tried == [()]
    assert "in place" not in caplog.text


@pytest.mark.parametrize("error", [BuildCancelled("stopped"), OptionError("no such option")])
def test_what_a_user_did_is_not_tried_again(monkeypatch, error):
    tried = []

    def refusing(self, *args, **kwargs):
        tried.append(self.aliases)
        raise error

    monkeypatch.setattr(tensorrt_rtx, "serialize", refusing)
    program = torch.export.export(Cache(put), (ONE, rows()))
    with pytest.raises((BuilderError, OptionError)):
        lower(program, builder="tensorrt_rtx")
    assert len(tried) == 1


def test_a_layer_that_nobody_asked_for_is_an_error(monkeypatch):
    """A later Torch-TensorRT may make the layer by itself, whoever needs the old value."""
    (request,), _ = recorded(Cache(put), (ONE, rows()))
    made = engines.build_network(request)
    from trt_et.conversion.converters.kv_cache_update import check_cache_updates

    check_cache_updates(made.network, made.aliases)
    for wrong in ((), (Alias("output1", made.aliases[0].input),)):
        with pytest.raises(BuilderError, match="in place; expected"):
            check_cache_updates(made.network, wrong)

    def silently(module, updates):
        update_in_place(module, updates)
        return ()

    monkeypatch.setattr(prepare, "update_in_place", silently)
    with pytest.raises(BuilderError, match="in place; expected"):
        engines.build_network(request)


# What is between the layer and the file.


def test_what_may_be_written_in_place_is_part_of_an_engine_key():
    _, request = recording("index_copy")
    (update,) = request.lowered.aliased_outputs

    def digest(*updates: InPlaceBuffer) -> str | None:
        lowered = replace(request.lowered, aliased_outputs=updates)
        return request_digest(replace(request, lowered=lowered))

    others = {digest(), digest(update), digest(replace(update, refuses_negative_indices=False))}
    assert len(others) == 3
    assert digest(update) == request_digest(request)


def test_equal_partitions_of_which_one_may_not_are_two_engines(tmp_path):
    """The very same partition: a buffer's in one method, the caller's in the other."""

    class Given(nn.Module):
        def forward(self, position, rows, cache):
            new = cache.index_copy(2, position, rows)
            return new, new * 2

    programs = {
        "own": torch.export.export(Cache(copy_rows), (ONE, rows())),
        "given": torch.export.export(Given(), (ONE, rows(), torch.zeros(SHAPE))),
    }
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx", cache=tmp_path)
    manager = to_edge_transform_and_lower(programs, partitioner=[partitioner])
    with torch.no_grad():
        methods = inspect_program(bytes(manager.to_executorch().buffer))
    found = {method.name: bytes(method.delegates[0].blob[:4]) for method in methods}
    assert found == {"own": b"TR02", "given": b"TR01"}


def test_an_engine_from_the_cache_still_says_what_it_writes_in_place(tmp_path, monkeypatch, capsys):
    def exported() -> bytes:
        program = torch.export.export(Cache(copy_rows), (ONE, rows()))
        return lower(program, builder="tensorrt_rtx", cache=tmp_path / "cache")

    first = exported()
    monkeypatch.setattr(tensorrt_rtx, "build_network", lambda *_: pytest.fail("built again"))
    second = exported()
    assert blobs(first) == blobs(second)
    assert blobs(second)[0][:4] == b"TR02"
    file = tmp_path / "cache.pte"
    file.write_bytes(second)
    said = CliRunner().invoke(app, ["inspect", str(file)]).output
    assert "out output0: float32 [2, 3, 8, 4], written into input" in said


def test_every_cache_of_a_transformers_decoder_is_written_in_place():
    config = tf.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    model = tf.LlamaForCausalLM(config).eval()
    model.generation_config = tf.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=16,
        cache_config={"batch_size": 1, "max_cache_len": 16, "device": "cpu"},
    )
    step = TorchExportableModuleWithStaticCache(model)
    call = {"input_ids": torch.tensor([[7]]), "cache_position": torch.tensor([3])}
    with torch.no_grad():
        program = torch.export.export(step, (), call, strict=True)
        pte = lower(program, builder="tensorrt_rtx")
    (blob,) = blobs(pte)
    decoded = decode_blob(blob)
    assert decoded.magic == b"TR02"
    shapes = {binding.name: binding.shape for binding in decoded.info.bindings}
    places = {(alias.output, alias.input) for alias in decoded.info.aliases}
    assert len(places) == len({output for output, _ in places}) == 2 * config.num_hidden_layers
    assert {shapes[name] for pair in places for name in pair} == {(1, 2, 16, 8)}
