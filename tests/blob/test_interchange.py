"""Blobs move between Torch-TensorRT's ExecuTorch backend and this one."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.support.blobs.vectors import GOOD
from tests.support.cli.sample_programs import torch_tensorrt_serialization
from trt_et.engine_info import Binding, EngineInfo, decode_blob, encode_blob, parse_device_id
from trt_et.errors import BlobError

ENGINE = bytes(range(100))
PLAIN = {name: blob for name, blob in GOOD.items() if blob[:4] == b"TR01" and len(blob) < 4000}


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    return torch_tensorrt_serialization()


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


def agrees(theirs: ModuleType, blob: bytes) -> bool:
    """Whether both readers take a blob; fails where it then means two things."""
    try:
        engine, said = theirs.deserialize_engine(blob)
        ours = decode_blob(blob)
    except (BlobError, ValueError, TypeError, AttributeError, RecursionError):
        return False
    info = ours.info
    assert bytes(ours.engine) == engine
    assert [(b.name, b.dtype, b.shape, b.is_input) for b in said.io_bindings] == [
        (b.name, b.dtype, list(b.shape), b.is_input) for b in info.bindings
    ]
    assert info.device_id in (None, said.device_id)
    for name in ("hardware_compatible", "serialized_metadata", "target_platform"):
        assert getattr(info, name) == getattr(said, name)
    return True


@pytest.mark.parametrize("name", PLAIN)
def test_they_read_the_golden_vectors_with_the_same_meaning(theirs, name):
    assert agrees(theirs, PLAIN[name])
