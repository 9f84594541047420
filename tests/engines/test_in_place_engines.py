"""Engines that update caches in place: their keys, the cache of engines, and whole decoders."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers as tf
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache
from typer.testing import CliRunner

from tests.support.lowering import blobs, lower
from tests.support.programs.kv_cache_models import SHAPE, Cache
from tests.support.programs.kv_cache_updates import ONE, copy_rows, recording, rows
from trt_et import TensorRTPartitioner
from trt_et.cli import app
from trt_et.engine_info import decode_blob
from trt_et.engines import tensorrt_rtx
from trt_et.engines.key import request_digest
from trt_et.inspection import inspect_program
from trt_et.lowering.in_place_buffers import InPlaceBuffer


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
    monkeypatch.setattr(tensorrt_rtx, "build_engine", lambda *_: pytest.fail("built again"))
    second = exported()
    assert blobs(first) == blobs(second)
    assert blobs(second)[0][:4] == b"TR02"
    file = tmp_path / "cache.pte"
    file.write_bytes(second)
    said = CliRunner().invoke(app, ["inspect", str(file)], env={"COLUMNS": "250"}).output
    assert "written into input" in said


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
