"""Golden engine blobs, for the readers of both languages (docs/blob.md)."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.native_blobs import binding, document, pack, reseal
from trt_et.engine_info import decode_blob


def bound(*bindings: Any) -> bytes:
    return pack(document(io_bindings=[*bindings]))


def with_input(shape: list[Any], name: str = "x", **more: Any) -> bytes:
    return bound(binding(name, shape, **{"is_input": True, **more}))


def dynamic(**changes: Any) -> bytes:
    ranges = {"min_shape": [1, 3], "opt_shape": [2, 3], "max_shape": [4, 3]} | changes
    return with_input([-1, 3], **ranges)


def network(members: Any, **changes: Any) -> bytes:
    """A network of a dynamic input and a static output."""
    ranges = {"min_shape": [1, 8], "opt_shape": [2, 8], "max_shape": [4, 8]}
    bindings = [
        binding("x", [-1, 8], is_input=True, **ranges),
        binding("y", [8], is_input=False),
    ]
    facts = {"io_bindings": bindings, "builder": "onnx", "network": members, **changes}
    return pack(document(**facts))


def with_range(*sizes: Any) -> bytes:
    return network({"profiles": [{"x": [*sizes]}]})


X = binding("x", [2, 3], is_input=True)
ALIAS = {"output": "y", "input": "x", "kind": "kv_cache_update"}
LOGGED = binding("y", [2, 3], is_input=False, value_of="linear_0")
# Without a checksum, a check of the header is the only one that can refuse these.
PLAIN = document(sha256=None)


def plain(**header: Any) -> bytes:
    return pack(PLAIN, checksum=False, **header)


# Valid: both readers take them, with the same meaning.
GOOD = {
    "ours": pack(document()),
    "4,096 bindings": bound(*[binding(f"x{i}", [], is_input=True) for i in range(4096)]),
    "4,096 profiles": network({"profiles": [{}] * 4096}),
    "reference": pack(document(builder="reference"), magic=b"TRRF"),
    "on another GPU": pack(document(device_id=127)),
    "no engine bytes": pack(document(), b""),
    "an engine beside the program": pack(document(engine_key="key of the engine"), b""),
    "no bindings": bound(),
    "dynamic": dynamic(),
    "dim order": with_input([1, 4, 4, 3], dim_order=[0, 2, 3, 1]),
    "aliased": pack(document(aliased_io=[ALIAS]), magic=b"TR02"),
    "empty list of aliases": pack(document(aliased_io=[])),
    "empty list of aliases in TR02": pack(document(aliased_io=[]), magic=b"TR02"),
    "an output for debugging": bound(LOGGED),
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
    "largest dimension": with_input([2**63 - 1]),
    "16 dimensions": with_input([1] * 16),
    "empty dimension": with_input([0, 3]),
    "empty name": with_input([2], ""),
    "no dtype": bound({"name": "x", "shape": [2], "is_input": True}),
    "many bindings": bound(*(binding(str(i), [2], is_input=True) for i in range(2000))),
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
    "no checksum": plain(),
    "a network": network(
        {
            "weights": ["trt_et_onnx_0a", "trt_et_onnx_1b"],
            "profiles": [{"x": [[1, 8], [1, 8], [1, 8]]}, {}],
            "strongly_typed": True,
            "weight_streaming": False,
            "workspace_size": 1024,
        }
    ),
    "a network without weights": network({}),
    "a network of a later version": network({"weights": [], "later": [1]}),
}

# Both readers refuse them.
BAD = {
    "empty": b"",
    "header only": pack(document())[:32],
    "magic": pack(document(), magic=b"TR03"),
    "metadata inside the header": pack(document(), metadata_at=16),
    "metadata outside": pack(document(), metadata_size=2**32 - 1),
    "metadata behind the end": pack(document(), metadata_at=2**32 - 16),
    "engine overlaps": plain(engine_at=32),
    "engine misaligned": plain(engine_at=len(plain()) - 4, engine_size=4),
    "engine behind the end": plain(engine_at=2**32 - 16),
    "engine wraps": plain(engine_size=2**64 - 32),
    "engine outside": plain(engine_size=13),
    "engine too short": pack(document(), engine_size=11),
    "trailing": pack(document(), tail=b"x"),
    "engine key is a number": pack(document(engine_key=1), b""),
    "sha256 without checksum": pack(document(), checksum=False),
    "checksum of no kind": pack(PLAIN)[:25] + b"\0" + pack(PLAIN)[26:],
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
    "dynamic without a dtype": bound(
        X,
        binding("y", [-1], is_input=False, dtype="", min_shape=[1], opt_shape=[2], max_shape=[4]),
    ),
    "reference without a dtype": pack(
        document(
            builder="reference", io_bindings=[X, {"name": "y", "shape": [], "is_input": False}]
        ),
        magic=b"TRRF",
    ),
    "NUL in a name": with_input([2], "x\0y"),
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
    "binding is a string": bound("x"),
    "binding without a name": bound({"is_input": True}),
    "binding without a direction": bound({"name": "x"}),
    "direction is a number": with_input([], is_input=1),
    "two of one name": bound(*[binding("x", [], is_input=True)] * 2),
    "unknown dtype": with_input([], dtype="int4"),
    "input for debugging": bound(LOGGED | {"is_input": True}),
    "output for debugging without a dtype": bound(LOGGED | {"dtype": ""}),
    "value_of is a number": bound(LOGGED | {"value_of": 1}),
    "dimension -2": with_input([-2]),
    "dimension true": with_input([True]),
    "dimension 2.0": with_input([2.0]),
    "dimension 2^63": with_input([2**63]),
    "17 dimensions": with_input([1] * 17),
    "dynamic without ranges": with_input([-1]),
    "dynamic without one range": dynamic(opt_shape=[]),
    "range without -1": with_input([2], min_shape=[1]),
    "range of another rank": dynamic(max_shape=[4]),
    "range upside down": dynamic(min_shape=[3, 3]),
    "range on a static dimension": dynamic(max_shape=[4, 5]),
    "dim order twice": with_input([2, 3], dim_order=[0, 0]),
    "dim order outside": with_input([2, 3], dim_order=[0, 2]),
    "dim order of another rank": with_input([2, 3], dim_order=[0]),
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
    "network of another builder": network({"weights": []}, builder="tensorrt"),
    "network is a list": network([]),
    "weights is a string": network({"weights": "a"}),
    "weight is a number": network({"weights": [1]}),
    **{
        f"weight is named {name[:5]!r}": network({"weights": [name]})
        for name in ("", ".", "../a", "a/b", "/a", "a b", "a" * 201)
    },
    "weights are not sorted": network({"weights": ["b", "a"]}),
    "weight twice": network({"weights": ["a", "a"]}),
    "workspace size -1": network({"workspace_size": -1}),
    "workspace size 2^63": network({"workspace_size": 2**63}),
    "workspace size true": network({"workspace_size": True}),
    "optimization level is a string": network({"optimization_level": "3"}),
    "weight streaming is a number": network({"weight_streaming": 1}),
    "profiles is an object": network({"profiles": {}}),
    "profile is a list": network({"profiles": [[]]}),
    "profile of an output": network({"profiles": [{"y": [[8], [8], [8]]}]}),
    "profile of nothing": network({"profiles": [{"z": [[8], [8], [8]]}]}),
    "profile is a number": network({"profiles": [{"x": 1}]}),
    "profile without a maximum": with_range([1, 8], [1, 8]),
    "profile of another rank": with_range([1], [1], [1]),
    "profile below its minimum": with_range([2, 8], [1, 8], [4, 8]),
    "profile beyond its maximum": with_range([1, 8], [5, 8], [4, 8]),
    "profile of another static size": with_range([1, 7], [1, 7], [1, 7]),
    "profile of a fraction": with_range([1, 8], [1, 8], [1.5, 8]),
    "profile of a negative size": with_range([-1, 8], [1, 8], [4, 8]),
    # A file may not ask for work that grows with the square of its size.
    "4,097 bindings": bound(*[binding(f"x{i}", [], is_input=True) for i in range(4097)]),
    "4,097 aliases": pack(document(aliased_io=[ALIAS] * 4097), magic=b"TR02"),
    "4,097 profiles": network({"profiles": [{}] * 4097}),
    "compatible is null": pack(document() | {"hardware_compatible": None}),
}


def facts_of(blob: bytes) -> dict[str, Any]:
    """What Python reads, in the form of the native tests' ``read_blob()``; without the engine."""
    read = decode_blob(blob)
    info = asdict(read.info)
    del info["precision"], info["parser"]  # read_blob() does not show them.
    if info["network"] is None:
        del info["network"]
    bindings = [
        {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in entry.items()
            if value is not None and (key, value) != ("value_of", "")
        }
        for entry in info.pop("bindings")
    ]
    return info | {
        "magic": read.magic.decode(),
        "has_checksum": read.has_checksum,
        "engine_size": len(read.engine),
        "io_bindings": bindings,
        "aliased_io": list(info.pop("aliases")),
        "compute_capabilities": list(info["compute_capabilities"]),
    }


def write_corpus(folder: Path) -> None:
    """The vectors as files, for a fuzzer to begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, blob in enumerate([*GOOD.values(), *BAD.values()]):
        (folder / f"vector{index}").write_bytes(blob)


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]))
