"""The blob container: exact bytes, and nothing in it is trusted."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.blobs.vectors import BAD
from tests.support.native_blobs import document, pack, reseal
from tests.support.sample_engine import ENGINE, INFO
from trt_et.engine_info import (
    Alias,
    Binding,
    decode_blob,
    encode_blob,
    parse_device_id,
)
from trt_et.errors import BlobError, DeviceIdError, TrtEtError

METADATA = (
    b'{"io_bindings":[{"name":"x","dtype":"float32","shape":[1,3],"is_input":true},'
    b'{"name":"output0","dtype":"float16","shape":[1,3],"is_input":false}],'
    b'"hardware_compatible":false,"device_id":2,"serialized_metadata":"",'
    b'"target_platform":"linux_x86_64","builder":"tensorrt_rtx","library_version":"1.5.0.114",'
    b'"compute_capabilities":["8.6","12.0"],"sha256":"'
    + hashlib.sha256(ENGINE).hexdigest().encode()
    + b'"}'
)


def test_the_bytes_are_exactly_these():
    header = struct.pack("<4sIIIQ", b"TR01", 32, len(METADATA), 448, 37)
    blob = encode_blob(ENGINE, INFO)
    assert len(METADATA) == 415
    assert blob[:28] == header + b"\x01\x01\x00\x00"
    assert blob[32:447] == METADATA
    assert blob[447:448] == bytes(1)
    assert blob[448:] == ENGINE
    assert struct.unpack("<I", blob[28:32])[0] == crc32c(blob[:28] + bytes(4) + blob[32:])


def test_what_is_written_is_read():
    info = replace(
        INFO,
        bindings=(
            Binding("a b%", "int64", (-1, 3), True, (1, 3), (4, 3), (8, 3)),
            Binding("ü", "bool", (), True),
            Binding("y", "float32", (2, 4, 4, 3), False, dim_order=(0, 2, 3, 1)),
        ),
        gpu_name='NVIDIA "H200"',
        hardware_compatible=True,
    )
    blob = decode_blob(encode_blob(ENGINE, info))
    assert blob.info == replace(info, sha256=hashlib.sha256(ENGINE).hexdigest())
    assert bytes(blob.engine) == ENGINE
    assert (blob.magic, blob.has_checksum) == (b"TR01", True)


def test_aliased_outputs_and_reference_engines_have_magics_of_their_own():
    aliased = encode_blob(ENGINE, replace(INFO, aliases=(Alias("output0", "x"),)))
    assert aliased[:4] == b"TR02"
    assert decode_blob(aliased).info.aliases == (Alias("output0", "x"),)
    assert encode_blob(ENGINE, replace(INFO, builder="reference"))[:4] == b"TRRF"


@pytest.mark.parametrize("info", [INFO, replace(INFO, builder="reference")])
def test_every_truncation_is_refused(info):
    blob = encode_blob(ENGINE, info)
    for size in range(len(blob)):
        with pytest.raises(BlobError):
            decode_blob(blob[:size])


def test_every_bit_flip_is_refused():
    blob = encode_blob(ENGINE, INFO)
    for bit in range(len(blob) * 8):
        broken = bytearray(blob)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BlobError):
            decode_blob(broken)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_blob_is_refused(name):
    with pytest.raises(BlobError):
        decode_blob(BAD[name])


def test_device_id_is_read_from_the_top_level_only():
    assert parse_device_id(encode_blob(ENGINE, INFO)) == 2
    inner = document(device_id=2, target_platform='"device_id":7', extra={"device_id": 9})
    assert parse_device_id(pack(inner)) == 2


@pytest.mark.parametrize("value", ["0", -1, 128, 1.0, True, None, [0], 2**70])
def test_an_unusable_device_id_is_never_taken_as_0(value):
    blob = pack({**document(), "device_id": value})
    assert decode_blob(blob).info.device_id is None
    with pytest.raises(DeviceIdError, match="device_id"):
        parse_device_id(blob)


def test_a_missing_device_id_is_said():
    with pytest.raises(DeviceIdError, match="no device_id"):
        parse_device_id(pack(document(device_id=None)))


@pytest.mark.parametrize(
    "change",
    [
        {"device_id": 128},
        {"device_id": True},
        {"bindings": (Binding("x", "complex64", (1,), True),)},
        {"bindings": (Binding("x", "float32", (-1,), True),)},
        {"bindings": (Binding("x", "float32", (1,), True),) * 2},
        {"aliases": (Alias("nothing", "x"),)},
    ],
)
def test_what_could_not_be_read_back_is_not_written(change):
    with pytest.raises(BlobError):
        encode_blob(ENGINE, replace(INFO, **change))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_mutants_give_an_info_or_a_clean_error(edits, checksum, sealed):
    blob = bytearray(pack(document() if checksum else document(sha256=None), checksum=checksum))
    for position, value in edits:
        blob[position % len(blob)] = value
    if sealed and checksum:
        blob = reseal(bytes(blob))
    try:
        decoded = decode_blob(blob)
    except TrtEtError:
        return
    assert len(decoded.engine) <= len(blob)
