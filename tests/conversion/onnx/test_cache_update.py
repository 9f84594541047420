"""KV caches are written by a function that TensorRT-RTX's parser replaces by its layer."""

from __future__ import annotations

import pytest
import torch

from tests.support.lowering import lower
from tests.support.onnx.comparison import HAS_PARSER, rtx
from tests.support.onnx.payloads import Payload, of_program
from tests.support.programs import kv_cache_updates as updates
from tests.support.programs.kv_cache_models import LENGTH, Cache
from trt_et.conversion.onnx.parser_operators import TAKES

ONE, RUN, FIRST = torch.tensor([5]), torch.arange(3) + 2, torch.tensor([0])
WRITES = {
    "one position": (updates.put, ONE, 1),
    "a position from the end": (updates.put, torch.tensor([-3]), 1),
    "a run from a position": (updates.copy_run, ONE, 3),
    "constant positions": (updates.put_constant_run, FIRST, 3),
    "a slice": (updates.slice_last, FIRST, 3),
    "ExecuTorch's Llama": (updates.executorch_llama, ONE, 2),
}


def payload_of(write, position, count, dtype=torch.float32, **options) -> Payload:
    model = Cache(write, dtype=dtype)
    with torch.no_grad():
        program = torch.export.export(model, (position, updates.rows(count, dtype)))
    (payload,) = of_program(lower(program, builder="onnx", **options))
    return payload


def eager(write, position, rows) -> torch.Tensor:
    model = Cache(write)
    model(position, rows)
    return model.cache


def run(payload: Payload, position, rows) -> list[torch.Tensor]:
    known = {4: [Cache(updates.put).cache, rows], 1: [position]}
    inputs = []
    for binding in payload.info.inputs:
        tensors = known[len(binding.shape)]
        inputs.append(next(t for t in tensors if list(t.shape) == list(binding.shape)))
    return payload.run(inputs)


def calls(payload: Payload) -> list[str]:
    return [node.op_type for node in payload.proto.graph.node if node.domain == "trt_et"]


@pytest.mark.parametrize("case", WRITES)
def test_rows_are_written_by_the_function_as_eager_writes_them(case):
    write, position, count = WRITES[case]
    payload = payload_of(write, position, count)
    assert calls(payload) == ["TensorScatter"]
    rows = updates.rows(count)
    positions = [position] if position is FIRST else [position, position.sign()]
    for start in positions:
        expected = eager(write, start, rows)
        found = [t for t in run(payload, start, rows) if t.shape == expected.shape]
        assert any(torch.equal(tensor, expected) for tensor in found), start


def test_rows_outside_of_the_cache_are_not_written():
    payload = payload_of(updates.copy_run, ONE, 3)
    rows = updates.rows(3)
    before = Cache(updates.put).cache
    for start in (LENGTH, LENGTH + 5, LENGTH - 1):
        found = run(payload, torch.tensor([start]), rows)
        expected = before.clone()
        expected[:, :, start:] = rows[:, :, : max(LENGTH - start, 0)]
        assert any(torch.equal(tensor, expected) for tensor in found), start


def test_writes_to_several_positions_make_a_new_cache():
    assert not calls(payload_of(updates.put, RUN, 3))


def test_an_option_leaves_the_function_out():
    payload = payload_of(updates.put, ONE, 1, state_in_place=False)
    assert not calls(payload)
    assert not payload.proto.functions


def test_every_parser_takes_the_body():
    (function,) = payload_of(updates.put, ONE, 1).proto.functions
    assert {node.op_type for node in function.node} <= TAKES.keys()


@pytest.mark.skipif(not HAS_PARSER, reason="tensorrt-rtx is not installed")
class TestParser:
    def layers(self, payload: Payload, name: str = "TensorScatter") -> list[str]:
        """Build the engine; return the kinds of the network's layers."""
        model = payload.with_weights()
        for node in [*model.graph.node, *model.functions]:
            if node.domain == "trt_et":
                setattr(node, "name" if hasattr(node, "node") else "op_type", name)
        trt, logger, builder = rtx()
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, logger)
        assert parser.parse(model.SerializeToString()), parser.get_error(0).desc()
        config = builder.create_builder_config()
        assert builder.build_serialized_network(network, config) is not None
        found = (network.get_layer(index) for index in range(network.num_layers))
        return [str(layer.type).rpartition(".")[2] for layer in found]

    @pytest.mark.parametrize("case", WRITES)
    def test_makes_one_layer_that_writes_in_place(self, case):
        dtype = torch.float16 if case == "constant positions" else torch.float32
        layers = self.layers(payload_of(*WRITES[case], dtype=dtype))
        assert layers.count("KV_CACHE_UPDATE") == 1
        assert "SCATTER" not in layers

    def test_takes_the_body_where_it_does_not_know_the_name(self):
        layers = self.layers(payload_of(*WRITES["a run from a position"]), "Unknown")
        assert "KV_CACHE_UPDATE" not in layers
        assert "SELECT" in layers
