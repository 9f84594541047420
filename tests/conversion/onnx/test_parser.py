"""TensorRT-RTX's own parser and builder take the payloads, on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from tests.support.lowering import export, lower
from tests.support.models import Function
from tests.support.onnx.comparison import HAS_PARSER, rtx
from tests.support.onnx.payloads import Payload, of_program

pytestmark = pytest.mark.skipif(not HAS_PARSER, reason="tensorrt-rtx is not installed")


def built(payload: Payload, folder) -> bytes:
    """Build a payload as a runtime does: the model, its weights in files, the profiles."""
    trt, logger, builder = rtx()
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    parsed = parser.parse_from_file(str(payload.save(folder)))
    assert parsed, [parser.get_error(i).desc() for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    dynamic = [binding for binding in payload.info.inputs if binding.is_dynamic]
    ranges = {b.name: (b.min_shape, b.opt_shape, b.max_shape) for b in dynamic}
    for shapes in payload.info.network["profiles"] or ([ranges] if ranges else []):
        profile = builder.create_optimization_profile()
        for name, (low, opt, high) in shapes.items():
            profile.set_shape(name, low, opt, high)
        config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    assert engine is not None
    return bytes(engine)


@pytest.mark.parametrize("name", ["mlp", "cnn", "vit", "channels_last", "outputs"])
def test_a_supported_model_is_built(name, tmp_path):
    (payload,) = of_program(lower(export(name), builder="onnx"))
    assert len(built(payload, tmp_path)) > 10_000


def test_a_cumulative_sum_and_profiles_are_built(tmp_path):
    sizes = (({1: Dim("n", min=1, max=32)},),)
    model = Function(lambda x: (x * 2).cumsum(1).softmax(-1))
    program = torch.export.export(model, (torch.randn(2, 8),), dynamic_shapes=sizes)
    name = program.graph_signature.user_inputs[0]
    profiles = [{name: {1: (1, 1, 4)}}, {name: {1: (1, 16, 32)}}]
    (payload,) = of_program(lower(program, builder="onnx", optimization_profiles=profiles))
    shapes = [[list(shape) for shape in p["input0"]] for p in payload.info.network["profiles"]]
    assert shapes == [[[2, 1], [2, 1], [2, 4]], [[2, 1], [2, 16], [2, 32]]]
    assert built(payload, tmp_path)
