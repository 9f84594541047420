"""On which GPU the .pte says that a delegate's tensors live."""

from __future__ import annotations

import logging

import pytest
import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec

from tests.support.builders import Rewritten
from tests.support.lowering import (
    blobs,
    delegate_tensor_devices,
    lower_case,
    planned_devices,
    target_devices,
)
from trt_et import OptionError, TensorRTPartitioner
from trt_et.engine_info import parse_device_id
from trt_et.target_device import parse_device


def test_one_engine_labels_its_tensors_and_its_planned_buffer():
    pte = lower_case("mlp", device="cuda:1")
    assert parse_device_id(blobs(pte)[0]) == 1
    assert target_devices(pte) == [[b"cuda:1"]]
    assert delegate_tensor_devices(pte) == [{"cuda:1"}]
    assert planned_devices(pte) == {"cuda:1"}


def test_two_partitions_on_two_gpus_are_each_labelled():
    pte = lower_case(
        "split", excluded_ops=[torch.ops.aten.cumsum], device=lambda part: f"cuda:{part.index}"
    )
    assert [parse_device_id(blob) for blob in blobs(pte)] == [0, 1]
    assert delegate_tensor_devices(pte) == [{"cuda:0"}, {"cuda:1"}]
    assert planned_devices(pte) == {"cuda:0", "cuda:1"}


def test_explicit_spec_is_verbatim_for_every_partition():
    spec = CompileSpec("target_device", b"CUDA:3")
    pte = lower_case("split", excluded_ops=[torch.ops.aten.cumsum], compile_specs=[spec])
    assert target_devices(pte) == [[b"CUDA:3"], [b"CUDA:3"]]
    assert delegate_tensor_devices(pte) == [{"cuda:3"}, {"cuda:3"}]
    assert planned_devices(pte) == {"cuda:3"}


def test_explicit_spec_wins_over_the_device_and_the_disagreement_is_said(caplog):
    spec = CompileSpec("target_device", b"cuda:3")
    with caplog.at_level(logging.WARNING, "trt_et"):
        pte = lower_case("mlp", compile_specs=[spec], device="cuda:1")
    assert target_devices(pte) == [[b"cuda:3"]]
    assert parse_device_id(blobs(pte)[0]) == 1
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "tensorrt_0" in caplog.text
    assert "cuda:1" in caplog.text


@pytest.mark.parametrize("device_id", [None, 128])
def test_unreadable_index_falls_back_to_cuda_0_with_one_warning(device_id, caplog):
    with caplog.at_level(logging.WARNING, "trt_et"):
        pte = lower_case("mlp", builder=Rewritten(device_id), device="cuda:1")
    assert target_devices(pte) == [[b"cuda:0"]]
    assert delegate_tensor_devices(pte) == [{"cuda:0"}]
    (record,) = caplog.records
    assert "tensorrt_0" in record.getMessage()
    assert "target_device" in record.getMessage()


def test_the_label_comes_from_the_blob_not_from_the_request():
    pte = lower_case("mlp", builder=Rewritten(5), device="cuda:1")
    assert target_devices(pte) == [[b"cuda:5"]]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([CompileSpec("target_device", b"cuda:x")], "target_device is b'cuda:x'; expected such as"),
        ([("target_device", b"cuda:1")], "expected CompileSpec objects"),
        ([CompileSpec("build", "0")], "compile spec 'build' is '0'; expected bytes, such as b'0'"),
        (
            [CompileSpec("target_device", device) for device in (b"cuda:0", b"cuda:1")],
            "several target_device",
        ),
    ],
)
def test_specs_that_executorch_cannot_read_are_refused(specs, message):
    with pytest.raises(OptionError, match=message):
        TensorRTPartitioner(specs, builder="reference")


@pytest.mark.parametrize(
    ("device", "index"),
    [
        *(("cuda:0", 0), ("CUDA:7", 7), ("cuda", 0), (3, 3), ("3", 3), ("cuda:127", 127)),
        *((torch.device("cuda:3"), 3), (torch.device("cuda"), 0)),
    ],
)
def test_devices_are_parsed(device, index):
    assert parse_device(device) == index


@pytest.mark.parametrize(
    "device",
    ["cpu", "cuda:", "cuda:-1", "cuda:128", 128, -1, True, None, "1:", torch.device("cpu")],
)
def test_what_is_no_gpu_is_refused(device):
    with pytest.raises(OptionError, match="not a GPU"):
        parse_device(device)
