"""Networks in place of engines: ONNX models with their weights beside them."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

from tests.support.lowering import blobs, lower, lower_case
from tests.support.models import Function, make
from tests.support.onnx.payloads import of_program
from trt_et import OptionError, TensorRTPartitioner
from trt_et.engine_info import decode_blob
from trt_et.inspection import inspect_program, read_program
from trt_et.inspection.texts import engine_text

LAYER = torch.nn.Linear(32, 16)


def test_the_blob_names_opset_gpu_weights_operators_and_options():
    options = {"workspace_size": 1 << 20, "optimization_level": 2, "weight_streaming": True}
    pte = lower_case("mlp", builder="onnx", device="cuda:3", **options)
    (delegate,) = inspect_program(pte)[0].delegates
    info = delegate.engine
    assert (info.builder, info.device_id, info.hardware_compatible) == ("onnx", 3, True)
    assert info.library_version.startswith("onnx ")
    assert info.library_version.endswith(" opset 20")
    stored = [key for key, _ in read_program(pte).named_data]
    assert stored
    assert list(info.network["weights"]) == sorted(stored)
    assert info.network["profiles"] == []
    assert info.network["strongly_typed"] is True
    assert {name: info.network[name] for name in options} == options
    assert delegate.operator_counts["aten::linear.default"] == 3
    assert engine_text(info).startswith("a network of onnx ")


def test_equal_weights_of_partitions_and_methods_are_stored_once():
    def in_two(x):
        return LAYER(x).double().sin().float() @ LAYER.weight  # float64 stays on the CPU.

    split = torch.export.export(Function(in_two), (torch.randn(4, 32),))
    whole = torch.export.export(Function(lambda x: LAYER(x)), (torch.randn(4, 32),))
    manager = to_edge_transform_and_lower(
        {"one": split, "two": whole},
        partitioner={name: [TensorRTPartitioner(builder="onnx")] for name in ("one", "two")},
    )
    program = read_program(bytes(manager.to_executorch().buffer))
    assert sum(len(method.delegates) for method in program.methods) == 3
    assert [size for _, size in program.named_data] == [LAYER.weight.nbytes]


def test_a_weight_that_is_transposed_is_beside_the_model():
    """That of a linear layer with an input of three dimensions."""
    program = torch.export.export(Function(lambda x: LAYER(x)), (torch.randn(2, 4, 32),))
    pte = lower(program, builder="onnx")
    assert [size for _, size in read_program(pte).named_data] == [LAYER.weight.nbytes]
    assert len(decode_blob(blobs(pte)[0]).engine) < LAYER.weight.nbytes


@pytest.mark.parametrize(
    "option",
    [
        {"compute_capabilities": ["8.6"]},
        {"refittable": True},
        {"dla_core": 0},
        {"torch_tensorrt_settings": {"disable_tf32": True}},
    ],
    ids=lambda option: next(iter(option)),
)
def test_options_of_the_engine_library_are_refused(option):
    with pytest.raises(OptionError, match=f"builder='onnx' takes no {next(iter(option))}"):
        TensorRTPartitioner(builder="onnx", **option)


def test_a_cached_payload_still_refers_to_its_weights(tmp_path):
    model, inputs = make("mlp")
    first, second = (
        lower_case("mlp", builder="onnx", cache=tmp_path, progress=False) for _ in range(2)
    )
    assert first == second
    assert len(list((tmp_path / "v1" / "engines").glob("??/*"))) == 1
    (payload,) = of_program(second)
    with torch.no_grad():
        torch.testing.assert_close(payload.run(inputs), [model(*inputs)])


def test_a_payload_in_float16_has_its_weights_in_float16():
    program = torch.export.export(Function(LAYER), (torch.randn(4, 32),))
    (payload,) = of_program(lower(program, builder="onnx", precision="float16"))
    assert payload.info.precision == "float16"
    assert [len(data) for data in payload.weights.values()] == [LAYER.weight.numel() * 2]


@pytest.mark.long
def test_a_worker_process_builds_the_same_payload():
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        there = lower_case("mlp", builder="onnx", executor=executor)
    assert there == lower_case("mlp", builder="onnx")
