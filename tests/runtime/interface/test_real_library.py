"""The real TensorRT-RTX library that pip installed, driven from C++ as far as it goes."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

import pytest
import torch

import trt_et.runtime
from tests.support.lowering import lower
from tests.support.native_programs import export
from tests.support.onnx.payloads import of_program
from tests.support.programs import lost_biases
from tests.support.provider_table import Provider, Tensor
from tests.support.sampled import sampled
from trt_et.inspection import kernels

pytestmark = pytest.mark.skipif(
    find_spec("tensorrt_rtx_libs") is None, reason="no TensorRT-RTX: pip install .[rtx]"
)


def test_on_a_fake_driver_the_real_library_starts_and_its_refusal_is_reported(
    runner, fake_cuda, tmp_path
):
    """Version, factory, logger, runtime and deserialization are the real ones."""
    model, x = torch.nn.Linear(4, 4).eval(), torch.ones(2, 4)
    program = export(tmp_path, "linear", model, (x,), builder="tensorrt_rtx")
    done = runner(
        *("--model_path", program.path),
        LD_LIBRARY_PATH=str(fake_cuda),
        TRT_ET_CUDART_LIBRARY=str(fake_cuda / "libcuda.so.1"),
        TRT_ET_LOG="debug",
    )
    assert done.returncode == 1, done.stderr
    assert "TensorRT: Loaded engine size" in done.stderr  # An INFO line of its logger.
    assert f"TensorRT {'.'.join(version('tensorrt-rtx').split('.')[:2])}" in done.stderr
    assert "refuses the engine: " in done.stderr


def test_the_real_builder_builds_what_its_python_bindings_build(tmp_path):
    """From C++: builder, parser with external weights, profile, progress and engine are real."""
    import tensorrt_rtx as trt

    from tests.support.onnx.models import linear

    payload = linear()
    steps = []

    def report(phase: bytes, step: int, count: int) -> int:
        steps.append((phase.decode(), step, count))
        return 1

    provider = Provider(trt_et.runtime.plugin_path().with_name("libtrt_et_tensorrt_rtx.so"))
    tensors = [Tensor(*tensor) for tensor in payload.tensors]
    engine = provider.build(payload.model, tensors, payload.weights, {}, report=report)

    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    for name, data in payload.weights.items():
        (tmp_path / name).write_bytes(data)
    assert parser.parse(payload.model, str(tmp_path / "model.onnx"))
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    profile.set_shape("x", (1, 8), (2, 8), (4, 8))
    config.add_optimization_profile(profile)
    expected = bytes(builder.build_serialized_network(network, config))
    assert engine[:28] == expected[:28]  # The kind of engine, and the version.
    assert abs(len(engine) - len(expected)) <= len(expected) * 0.01
    assert ("Building engine", 0) in {(phase, step) for phase, step, _ in steps}


def test_the_real_builder_streams_weights_of_static_shapes():
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "network", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    provider = Provider(trt_et.runtime.plugin_path().with_name("libtrt_et_tensorrt_rtx.so"))
    tensors = [Tensor("x", [4], True), Tensor("y", [4], False)]
    assert provider.build(model.SerializeToString(), tensors, {}, {"weight_streaming": True})


@pytest.mark.parametrize("name", sampled(lost_biases.FORMS, 6))
def test_no_kernel_of_its_engines_may_lose_a_bias(name):
    (payload,) = of_program(lower(lost_biases.export(name), builder="onnx"))
    info = payload.info
    tensors = [Tensor(b.name, b.shape, b in info.inputs, b.dtype) for b in info.bindings]
    provider = Provider(trt_et.runtime.plugin_path().with_name("libtrt_et_tensorrt_rtx.so"))
    steps = []

    def report(phase: bytes, step: int, count: int) -> int:
        steps.append((phase, step))
        return 1

    engine = provider.build(payload.model, tensors, payload.weights, {}, report=report)
    assert kernels.lost_biases(engine) == ()
    assert steps.count((b"Building engine", 0)) == 2, "the first engine had no such kernel"


def test_the_real_parsers_refusal_names_the_node():
    from onnx import TensorProto, helper

    x, y = (
        helper.make_tensor_value_info(name, kind, [4])
        for name, kind in (("x", TensorProto.FLOAT), ("y", TensorProto.STRING))
    )
    node = helper.make_node("Cast", ["x"], ["y"], name="to_text", to=TensorProto.STRING)
    model = helper.make_model(
        helper.make_graph([node], "network", [x], [y]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    provider = Provider(trt_et.runtime.plugin_path().with_name("libtrt_et_tensorrt_rtx.so"))
    tensors = [Tensor("x", [4], True), Tensor("y", [4], False)]
    with pytest.raises(RuntimeError, match=r"does not take node '.*to_text' \(Cast"):
        provider.build(model.SerializeToString(), tensors, {})
