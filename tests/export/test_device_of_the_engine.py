"""The device comes from the engines or from the caller: pytorch/TensorRT#4329, box by box."""

from __future__ import annotations

import logging

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
from tests.support.models import make
from tests.support.native_environment import ROOT
from tests.support.stock_process import check
from trt_et.engine_info import decode_blob, parse_device_id

SPLIT = {"excluded_ops": [torch.ops.aten.cumsum]}


def pinned(device: bytes) -> dict:
    return {"compile_specs": [CompileSpec("target_device", device)]}


def test_an_explicit_cuda_0_changes_no_byte():
    assert lower_case("mlp") == lower_case("mlp", **pinned(b"cuda:0"))


def test_tensors_and_planned_buffers_record_the_engines_gpu():
    pte = lower_case("mlp", device="cuda:2")
    assert delegate_tensor_devices(pte) == [{("CUDA", 2)}]
    assert planned_devices(pte) == {("CUDA", 2)}


def test_an_explicit_device_is_verbatim_for_every_partition_and_nothing_is_extracted():
    # The engines' own indices are unreadable: were they asked for, there would be a warning.
    pte = lower_case("split", builder=Rewritten("?"), **SPLIT, **pinned(b"cuda:3"))
    assert target_devices(pte) == [[b"cuda:3"], [b"cuda:3"]]


def test_an_unreadable_index_is_cuda_0_with_a_warning_for_each_partition(caplog):
    with caplog.at_level(logging.WARNING, "trt_et"):
        pte = lower_case("split", builder=Rewritten("?"), **SPLIT)
    assert target_devices(pte) == [[b"cuda:0"], [b"cuda:0"]]
    messages = [record.getMessage() for record in caplog.records]
    for partition in ("tensorrt_0", "tensorrt_1"):
        assert any(partition in message for message in messages)


def test_one_parser_serves_export_and_inspection():
    # C++ and Python read the same blobs alike: tests/runtime/test_blob.py.
    import trt_et.engine_info
    import trt_et.target_device as export_time

    assert export_time.parse_device_id is trt_et.engine_info.parse_device_id
    (blob,) = blobs(lower_case("order", device=5))
    assert parse_device_id(blob) == decode_blob(blob).info.device_id == 5


def test_it_is_documented_what_the_spec_and_the_blob_decide():
    guide = " ".join((ROOT / "docs/guides/several-gpus.md").read_text().split())
    assert "the GPU of the *tensors*; the blob determines the GPU of the *engine*" in guide


def test_a_disagreement_of_spec_and_blob_is_said_at_export_and_safe_at_run_time(caplog, tmp_path):
    with caplog.at_level(logging.WARNING, "trt_et"):
        pte = lower_case("order", device="cuda:0", **pinned(b"cuda:1"))
    assert "tensorrt_0" in caplog.text
    assert "cuda:0" in caplog.text
    assert "cuda:1" in caplog.text
    assert delegate_tensor_devices(pte) == [{("CUDA", 1)}]
    check(tmp_path, pte, *make("order"))
