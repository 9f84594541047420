"""Networks in place of engines: ONNX models with their weights beside them."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

from tests.support.lowering import blobs, lower, request
from tests.support.models import Function, make
from tests.support.onnx.payloads import payload_of
from trt_et import OptionError, TensorRTPartitioner
from trt_et.engine_info import decode_blob
from trt_et.inspection import read_program

LAYER = torch.nn.Linear(32, 16)


def test_a_payload_computes_what_eager_does():
    model, inputs = make("mlp")
    wanted = request(model, *inputs)
    payload = payload_of(wanted.lowered, wanted)
    with torch.no_grad():
        expected = model(*inputs)
    torch.testing.assert_close(payload.run(inputs), [expected])


def test_the_blob_names_opset_gpu_and_weights():
    model, inputs = make("mlp")
    pte = lower(torch.export.export(model, inputs), builder="onnx", device="cuda:3")
    (blob,) = blobs(pte)
    info = decode_blob(blob).info
    assert (info.builder, info.device_id, info.hardware_compatible) == ("onnx", 3, True)
    assert info.library_version.startswith("onnx ")
    assert info.library_version.endswith(" opset 20")
    stored = [key for key, _ in read_program(pte).named_data]
    assert stored
    assert list(info.network["weights"]) == sorted(stored)
    assert info.network["profiles"] == []
    assert info.network["strongly_typed"] is True


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


def test_the_options_of_an_engine_that_it_can_fulfil_are_in_the_blob():
    model, inputs = make("mlp")
    options = {"workspace_size": 1 << 20, "optimization_level": 2, "weight_streaming": True}
    (blob,) = blobs(lower(torch.export.export(model, inputs), builder="onnx", **options))
    network = decode_blob(blob).info.network
    assert {name: network[name] for name in options} == options


@pytest.mark.parametrize(
    "option",
    [
        {"compute_capabilities": ["8.6"]},
        {"refittable": True},
        {"dla_core": 0},
        {"settings": {"disable_tf32": True}},
    ],
    ids=lambda option: next(iter(option)),
)
def test_options_of_the_engine_library_are_refused(option):
    with pytest.raises(OptionError, match=f"builder='onnx' takes no {next(iter(option))}"):
        TensorRTPartitioner(builder="onnx", **option)


def test_auto_never_chooses_it():
    assert TensorRTPartitioner(builder="auto")._builder.name != "onnx"
