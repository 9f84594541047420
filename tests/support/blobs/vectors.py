"""Golden engine blobs, for the readers of both languages (docs/blob.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.support.native_blobs import binding, document, pack, reseal
from trt_et.engine_info import decode_blob

__all__ = ["BAD", "GOOD", "facts_of"]


def dynamic(**changes: Any) -> dict[str, Any]:
    ranges = {"min_shape": [1, 3], "opt_shape": [2, 3], "max_shape": [4, 3]} | changes
    return document(io_bindings=[binding("x", [-1, 3], is_input=True, **ranges)])


ALIAS = {"output": "y", "input": "x", "kind": "kv_cache_update"}
LOGGED = binding("y", [2, 3], is_input=False, value_of="linear_0")
PLAIN = {"sha256": None, "builder": None}

# Valid: both readers take them, with the same meaning.
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
    "empty list of aliases": pack(document(aliased_io=[])),
    "empty list of aliases in TR02": pack(document(aliased_io=[]), magic=b"TR02"),
    "an output for debugging": pack(document(io_bindings=[LOGGED])),
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
    "escapes": pack(
        b'{"io_bindings":[],"gpu_name":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\u0000"}'
    ),
    "white space": pack(b' \t\r\n{ "io_bindings" : [ ] } \n'),
    "numbers that nobody reads": pack(
        b'{"io_bindings":[],"x":[-0,-1.5e-300,1E5,0.0,9223372036854775808,-18446744073709551616]}'
    ),
    "an integer of 300 digits": pack(b'{"io_bindings":[],"x":' + b"9" * 300 + b"}"),
    "device id of 30 digits": pack(b'{"io_bindings":[],"device_id":' + b"9" * 30 + b"}"),
    "device id is a list": pack(document(device_id=[0])),
    "as deep as may be": pack(b'{"io_bindings":[],"x":' + b"[" * 15 + b"]" * 15 + b"}"),
    "largest dimension": pack(document(io_bindings=[binding("x", [2**63 - 1], is_input=True)])),
    "16 dimensions": pack(document(io_bindings=[binding("x", [1] * 16, is_input=True)])),
    "empty dimension": pack(document(io_bindings=[binding("x", [0, 3], is_input=True)])),
    "empty name": pack(document(io_bindings=[binding("", [2], is_input=True)])),
    "no dtype": pack(document(io_bindings=[{"name": "x", "shape": [2], "is_input": True}])),
    "many bindings": pack(
        document(io_bindings=[binding(str(i), [2], is_input=True) for i in range(2000)])
    ),
    "metadata behind a gap": pack(
        b" " * 16 + b'{"io_bindings":[]}', metadata_at=48, metadata_size=18
    ),
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

# Both readers refuse them.
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
    "checksum of no kind": pack(document(**PLAIN))[:25] + b"\0" + pack(document(**PLAIN))[26:],
    "checksum kind": reseal(pack(document())[:25] + b"\2" + pack(document())[26:]),
    "reserved bytes": reseal(pack(document())[:26] + b"\1" + pack(document())[27:]),
    "not JSON": pack(b"{"),
    "no metadata": pack(b""),
    "ends in NUL": pack(b'{"io_bindings":[]}\0'),
    "ends in NUL and anything": pack(b'{"io_bindings":[]}\0anything'),
    "begins with NUL": pack(b'\0{"io_bindings":[]}'),
    "NUL between": pack(b'{"io_bindings":\0[]}'),
    "NUL in a string": pack(b'{"io_bindings":[],"gpu_name":"a\0b"}'),
    "control character in a string": pack(b'{"io_bindings":[],"gpu_name":"a\x1fb"}'),
    "an integer of 310 digits": pack(b'{"io_bindings":[],"x":' + b"9" * 310 + b"}"),
    "an integer of -5000 digits": pack(b'{"io_bindings":[],"x":-' + b"9" * 5000 + b"}"),
    "a number with a leading zero": pack(b'{"io_bindings":[],"x":01}'),
    "a number with a plus": pack(b'{"io_bindings":[],"x":+1}'),
    "a number without digits": pack(b'{"io_bindings":[],"x":1.}'),
    "a low surrogate alone": pack(b'{"io_bindings":[],"gpu_name":"\\udc00\\ud800"}'),
    "a surrogate in UTF-8": pack(b'{"io_bindings":[],"gpu_name":"\xed\xa0\x80"}'),
    "an unknown escape": pack(b'{"io_bindings":[],"gpu_name":"\\x41"}'),
    "single quotes": pack(b"{'io_bindings':[]}"),
    "white space that is none": pack(b'\x0c{"io_bindings":[]}'),
    "UTF-16": pack('{"io_bindings":[]}'.encode("utf-16")),
    "a dimension of 310 digits": pack(
        b'{"io_bindings":[{"name":"x","is_input":true,"shape":[' + b"9" * 310 + b"]}]}"
    ),
    "dynamic without a dtype": pack(
        document(
            io_bindings=[
                binding("x", [2, 3], is_input=True),
                binding(
                    "y", [-1], is_input=False, dtype="", min_shape=[1], opt_shape=[2], max_shape=[4]
                ),
            ]
        )
    ),
    "reference without a dtype": pack(
        document(
            builder="reference",
            io_bindings=[
                binding("x", [2, 3], is_input=True),
                {"name": "y", "shape": [], "is_input": False},
            ],
        ),
        magic=b"TRRF",
    ),
    "NUL in a name": pack(document(io_bindings=[binding("x\0y", [2], is_input=True)])),
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
    "input for debugging": pack(document(io_bindings=[LOGGED | {"is_input": True}])),
    "output for debugging without a dtype": pack(document(io_bindings=[LOGGED | {"dtype": ""}])),
    "value_of is a number": pack(document(io_bindings=[LOGGED | {"value_of": 1}])),
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


def facts_of(blob: bytes) -> dict[str, Any]:
    """What Python reads, in the form of the native tests' ``read_blob()``; without the engine."""
    read = decode_blob(blob)
    info = read.info
    bindings = []
    for entry in info.bindings:
        facts: dict[str, Any] = {
            "name": entry.name,
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "is_input": entry.is_input,
        }
        for key in ("min_shape", "opt_shape", "max_shape"):
            if entry.is_dynamic:
                facts[key] = list(getattr(entry, key))
        if entry.dim_order is not None:
            facts["dim_order"] = list(entry.dim_order)
        if entry.value_of:
            facts["value_of"] = entry.value_of
        bindings.append(facts)
    return {
        "magic": read.magic.decode(),
        "has_checksum": read.has_checksum,
        "engine_size": len(read.engine),
        "io_bindings": bindings,
        "aliased_io": [
            {"output": a.output, "input": a.input, "kind": a.kind} for a in info.aliases
        ],
        "hardware_compatible": info.hardware_compatible,
        "device_id": info.device_id,
        "serialized_metadata": info.serialized_metadata,
        "target_platform": info.target_platform,
        "builder": info.builder,
        "library_version": info.library_version,
        "compute_capabilities": list(info.compute_capabilities),
        "gpu_name": info.gpu_name,
        "sha256": info.sha256,
    }


def write_corpus(folder: Path) -> None:
    """The vectors as files, for a fuzzer to begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, blob in enumerate([*GOOD.values(), *BAD.values()]):
        (folder / f"vector{index}").write_bytes(blob)


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]))
