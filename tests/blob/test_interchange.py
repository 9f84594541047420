"""Blobs move between Torch-TensorRT's ExecuTorch backend and this one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from trt_et.engine_info import Binding, EngineInfo, decode_blob, encode_blob, parse_device_id

ENGINE = bytes(range(100))


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    """Torch-TensorRT's own module, without its package, whose import would register a backend."""
    found = importlib.util.find_spec("torch_tensorrt")
    assert found is not None, "Torch-TensorRT is a development dependency"
    assert found.origin is not None
    path = Path(found.origin).parent / "executorch" / "serialization.py"
    spec = importlib.util.spec_from_file_location("torch_tensorrt_serialization", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("device_id", [0, 3])
def test_they_read_ours(theirs, device_id):
    info = EngineInfo(
        bindings=(
            Binding("x", "float32", (-1, 3), True, (1, 3), (2, 3), (4, 3)),
            Binding("output0", "int64", (1,), False),
        ),
        device_id=device_id,
        builder="tensorrt_rtx",
        hardware_compatible=True,
        target_platform="linux_x86_64",
    )
    engine, metadata = theirs.deserialize_engine(encode_blob(ENGINE, info))
    assert engine == ENGINE
    assert metadata.device_id == device_id
    assert metadata.hardware_compatible
    assert metadata.target_platform == "linux_x86_64"
    assert [(b.name, b.is_input, b.dtype, b.shape) for b in metadata.io_bindings] == [
        ("x", True, "float32", [-1, 3]),
        ("output0", False, "int64", [1]),
    ]


def test_ours_reads_theirs(theirs):
    metadata = theirs.TensorRTBlobMetadata(
        io_bindings=[
            theirs.TensorRTIOBinding(name="in", is_input=True),
            theirs.TensorRTIOBinding(name="out", is_input=False),
        ],
        hardware_compatible=True,
        device_id=5,
        serialized_metadata="state",
        target_platform="linux_x86_64",
    )
    blob = decode_blob(theirs.serialize_engine(ENGINE, metadata))
    assert bytes(blob.engine) == ENGINE
    assert not blob.has_checksum
    assert parse_device_id(theirs.serialize_engine(ENGINE, metadata)) == 5
    assert blob.info == EngineInfo(
        bindings=(Binding("in", "", (), True), Binding("out", "", (), False)),
        device_id=5,
        hardware_compatible=True,
        target_platform="linux_x86_64",
        serialized_metadata="state",
    )


def test_a_reference_engine_is_refused_by_them(theirs):
    info = EngineInfo(bindings=(), builder="reference")
    with pytest.raises(ValueError, match="magic"):
        theirs.deserialize_engine(encode_blob(ENGINE, info))
