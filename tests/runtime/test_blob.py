"""The native blob parser, held to docs/blob.md and to the Python one."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.native_blobs import binding, document, pack, reseal
from trt_et.engine_info import decode_blob
from trt_et.errors import BlobError

INVALID_PROGRAM = 0x23
Describe = Callable[[bytes], tuple[int, str]]


@pytest.fixture
def describe(plugin: ctypes.CDLL) -> Describe:
    out = ctypes.create_string_buffer(1 << 16)

    def call(blob: bytes) -> tuple[int, str]:
        code = plugin.trt_et_describe_blob(blob, len(blob), out, len(out))
        return code, out.value.decode()

    return call


def dynamic(**changes: Any) -> dict[str, Any]:
    ranges = {"min_shape": [1, 3], "opt_shape": [2, 3], "max_shape": [4, 3]} | changes
    return document(io_bindings=[binding("x", [-1, 3], is_input=True, **ranges)])


ALIAS = {"output": "y", "input": "x", "kind": "kv_cache_update"}
PLAIN = {"sha256": None, "builder": None}

GOOD = {
    "ours": pack(document()),
    "reference": pack(document(builder="reference"), magic=b"TRRF"),
    "on another GPU": pack(document(device_id=127)),
    "no engine bytes": pack(document(), b""),
    "no bindings": pack(document(io_bindings=[])),
    "dynamic": pack(dynamic()),
    "dim order": pack(
        document(io_bindings=[binding("x", [1, 4, 4, 3], is_input=True, dim_order=[0, 2, 3, 1])])
    ),
    "aliased": pack(document(aliased_io=[ALIAS]), magic=b"TR02"),
    "unknown key": pack(document(extra={"device_id": 7, "io_bindings": 3})),
    "unicode": pack(document(gpu_name="Größe ✓ \U0001f600 \0")),
    "keys in strings": pack(document(gpu_name='"device_id": 5, "io_bindings": []')),
    "no device id": pack(document(device_id=None)),
    "device id is a string": pack(document(device_id="0")),
    "device id is a boolean": pack(document(device_id=True)),
    "device id is a float": pack(document(device_id=1.0)),
    "device id too large": pack(document(device_id=128)),
    "device id negative": pack(document(device_id=-1)),
    "device id wraps": pack(document(device_id=2**64)),
    "Torch-TensorRT's": pack(
        {
            "io_bindings": [{"name": "x", "dtype": "", "shape": [], "is_input": True}],
            "hardware_compatible": True,
            "device_id": 1,
            "serialized_metadata": "",
            "target_platform": "",
        },
        checksum=False,
        tail=b"trailing",
    ),
    "Torch-TensorRT's, bare": pack(b'{"io_bindings":[]}', checksum=False),
}

BAD = {
    "empty": b"",
    "header only": pack(document())[:32],
    "magic": b"TR03" + pack(document())[4:],
    "metadata inside the header": pack(document(), metadata_at=16),
    "metadata outside": pack(document(), metadata_size=2**32 - 1),
    "metadata behind the end": pack(document(), metadata_at=2**32 - 16),
    "engine overlaps": pack(document(), engine_at=32),
    "engine misaligned": pack(document(), engine_at=len(pack(document())) - 12 + 8),
    "engine wraps": pack(document(), checksum=False, engine_size=2**64 - 32),
    "engine outside": pack(document(), engine_size=13),
    "engine too short": pack(document(), engine_size=11),
    "trailing": pack(document(), tail=b"x"),
    "sha256 without checksum": pack(document(), checksum=False),
    "checksum kind": reseal(pack(document())[:25] + b"\2" + pack(document())[26:]),
    "reserved bytes": reseal(pack(document())[:26] + b"\1" + pack(document())[27:]),
    "not JSON": pack(b"{"),
    "no metadata": pack(b""),
    "a list": pack(b"[]"),
    "byte order mark": pack(b'\xef\xbb\xbf{"io_bindings":[]}'),
    "trailing comma": pack(b'{"io_bindings":[],}'),
    "comment": pack(b'{"io_bindings":[] /* none */}'),
    "two documents": pack(b'{"io_bindings":[]}{}'),
    "NaN": pack(b'{"io_bindings":[],"x":NaN}'),
    "infinite": pack(b'{"io_bindings":[],"x":1e999}'),
    "bad UTF-8": pack(b'{"io_bindings":[],"gpu_name":"\xff"}'),
    "overlong UTF-8": pack(b'{"io_bindings":[],"gpu_name":"\xc0\xaf"}'),
    "lone surrogate": pack(b'{"io_bindings":[],"gpu_name":"\\ud800"}'),
    "duplicate key": pack(b'{"io_bindings":[],"device_id":0,"device_id":1}'),
    "duplicate key, escaped": pack(b'{"io_bindings":[],"a":0,"\\u0061":1}'),
    "duplicate key, nested": pack(b'{"io_bindings":[],"x":{"a":[{"b":0,"b":1}]}}'),
    "too deep": pack(b'{"io_bindings":[],"x":' + b"[" * 16 + b"]" * 16 + b"}"),
    "much too deep": pack(b'{"x":' + b"[" * 100000),
    "no io_bindings": pack(document(io_bindings=None)),
    "io_bindings is an object": pack(document(io_bindings={})),
    "binding is a string": pack(document(io_bindings=["x"])),
    "binding without a name": pack(document(io_bindings=[{"is_input": True}])),
    "binding without a direction": pack(document(io_bindings=[{"name": "x"}])),
    "direction is a number": pack(document(io_bindings=[binding("x", [], is_input=1)])),
    "two of one name": pack(document(io_bindings=[binding("x", [], is_input=True)] * 2)),
    "unknown dtype": pack(document(io_bindings=[binding("x", [], is_input=True, dtype="int4")])),
    "dimension -2": pack(document(io_bindings=[binding("x", [-2], is_input=True)])),
    "dimension true": pack(document(io_bindings=[binding("x", [True], is_input=True)])),
    "dimension 2.0": pack(document(io_bindings=[binding("x", [2.0], is_input=True)])),
    "dimension 2^63": pack(document(io_bindings=[binding("x", [2**63], is_input=True)])),
    "17 dimensions": pack(document(io_bindings=[binding("x", [1] * 17, is_input=True)])),
    "dynamic without ranges": pack(document(io_bindings=[binding("x", [-1], is_input=True)])),
    "dynamic without one range": pack(dynamic(opt_shape=[])),
    "range without -1": pack(
        document(io_bindings=[binding("x", [2], is_input=True, min_shape=[1])])
    ),
    "range of another rank": pack(dynamic(max_shape=[4])),
    "range upside down": pack(dynamic(min_shape=[3, 3])),
    "range on a static dimension": pack(dynamic(max_shape=[4, 5])),
    "dim order twice": pack(
        document(io_bindings=[binding("x", [2, 3], is_input=True, dim_order=[0, 0])])
    ),
    "dim order outside": pack(
        document(io_bindings=[binding("x", [2, 3], is_input=True, dim_order=[0, 2])])
    ),
    "dim order of another rank": pack(
        document(io_bindings=[binding("x", [2, 3], is_input=True, dim_order=[0])])
    ),
    "alias in TR01": pack(document(aliased_io=[ALIAS])),
    "alias of nothing": pack(document(aliased_io=[ALIAS | {"input": "z"}]), magic=b"TR02"),
    "alias upside down": pack(document(aliased_io=[{"output": "x", "input": "y"}]), magic=b"TR02"),
    "alias is a string": pack(document(aliased_io=["x"]), magic=b"TR02"),
    "reference builder in TR01": pack(document(builder="reference")),
    "real builder in TRRF": pack(document(), magic=b"TRRF"),
    "builder is a number": pack(document(builder=1)),
    "capability is a number": pack(document(compute_capabilities=[8.6])),
    "capabilities is a string": pack(document(compute_capabilities="8.6")),
    "sha256 too short": pack(document(sha256="00")),
    "sha256 in capitals": pack(document(sha256="A" * 64)),
    "compatible is null": pack(document() | {"hardware_compatible": None}),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_blobs_mean_the_same_in_both_languages(describe: Describe, name: str) -> None:
    code, text = describe(GOOD[name])
    assert code > 0, text
    assert json.dumps(json.loads(text), sort_keys=True) == json.dumps(json.loads(text))
    facts = json.loads(text)
    blob = decode_blob(GOOD[name])
    info = blob.info
    assert facts["magic"].encode() == blob.magic
    assert facts["has_checksum"] is blob.has_checksum
    assert GOOD[name][facts["engine_offset"] :][: facts["engine_size"]] == bytes(blob.engine)
    for key in [
        "device_id",
        "builder",
        "library_version",
        "gpu_name",
        "hardware_compatible",
        "target_platform",
        "sha256",
        "serialized_metadata",
    ]:
        assert facts[key] == getattr(info, key), key
    assert facts["compute_capabilities"] == list(info.compute_capabilities)
    assert [(a["output"], a["input"], a["kind"]) for a in facts["aliased_io"]] == [
        (alias.output, alias.input, alias.kind) for alias in info.aliases
    ]
    for found, expected in zip(facts["io_bindings"], info.bindings, strict=True):
        for key in ("name", "dtype", "is_input"):
            assert found[key] == getattr(expected, key)
        for key in ("shape", "min_shape", "opt_shape", "max_shape", "dim_order"):
            dims = getattr(expected, key)
            assert found.get(key) == (None if dims is None else list(dims)), key


@pytest.mark.parametrize("name", BAD)
def test_bad_blobs_are_refused_in_both_languages(describe: Describe, name: str) -> None:
    code, text = describe(BAD[name])
    assert code == -INVALID_PROGRAM
    assert 0 < len(text) <= 200
    with pytest.raises(BlobError):
        decode_blob(BAD[name])


def test_every_truncation_and_bit_flip_is_refused(describe: Describe) -> None:
    blob = GOOD["aliased"]
    for length in range(len(blob)):
        assert describe(blob[:length])[0] < 0, length
    for bit in range(8 * len(blob)):
        flipped = bytearray(blob)
        flipped[bit // 8] ^= 1 << bit % 8
        code, text = describe(bytes(flipped))
        # Torch-TensorRT's marker byte is not ours to check, but the checksum covers it.
        assert code < 0, (bit, text)


def test_short_buffers_are_terminated(plugin: ctypes.CDLL) -> None:
    blob = GOOD["ours"]
    needed = plugin.trt_et_describe_blob(blob, len(blob), None, 0)
    out = ctypes.create_string_buffer(b"\xff" * 8, 8)
    assert plugin.trt_et_describe_blob(blob, len(blob), out, 8) == needed > 8
    assert len(out.value) == 7
    assert plugin.trt_et_describe_blob(None, 0, out, 8) == -INVALID_PROGRAM
