"""Mutants of engine blobs: both readers take the same ones, with the same meaning."""

from __future__ import annotations

import copy
import ctypes
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from tests.support.blob_vectors import BAD, GOOD, facts_of
from trt_et.errors import BlobError

MUTANTS = 6000
INVALID_PROGRAM = 0x23
HEADER = {
    "metadata_at": (4, 4),
    "metadata_size": (8, 4),
    "engine_at": (12, 4),
    "engine_size": (16, 8),
}
# What replaces a value of the metadata.
ODD: list[Any] = [
    *(
        None,
        True,
        False,
        "",
        "x",
        "y",
        "float32",
        "reference",
        "tensorrt",
        "kv_cache_update",
        "a\0b",
    ),
    *(
        -2,
        -1,
        0,
        1,
        2,
        127,
        128,
        2**31,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63) - 1,
        10**309,
        1.0,
        0.5,
        1e308,
    ),
    *([], [1], [-1, 3], [0, 1], [[]], {}, {"name": "x", "is_input": True}, "\u2713", "\ud800"),
]


def sealed(blob: bytearray) -> bytes:
    """The blob with the right checksum, where it has a header."""
    if len(blob) >= 32:
        blob[28:32] = bytes(4)
        blob[28:32] = struct.pack("<I", crc32c(bytes(blob)))
    return bytes(blob)


def with_metadata(blob: bytes, metadata: bytes) -> bytearray:
    """The blob with other metadata; engine and magic stay."""
    engine_at, engine_size = struct.unpack_from("<IQ", blob, 12)
    engine = blob[engine_at : engine_at + engine_size]
    at = -(-(32 + len(metadata)) // 16) * 16
    head = bytearray(blob[:32])
    struct.pack_into("<III", head, 4, 32, len(metadata), at)
    return head + metadata.ljust(at - 32, b"\0") + engine


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a document."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [path] * bool(path) + [p for key, item in items for p in paths_in(item, (*path, key))]


def change_document(rng: random.Random, document: Any) -> bytes:
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        paths = paths_in(document)
        if not paths:
            break
        *path, last = rng.choice(paths)
        parent = document
        for key in path:
            parent = parent[key]
        action = rng.randrange(4)
        if action == 0:
            del parent[last]
        elif action == 1 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        elif action == 2 and isinstance(parent, dict):
            parent[rng.choice(["name", "dtype", "shape", "dim_order", "sha256"])] = rng.choice(ODD)
        else:
            parent[last] = copy.deepcopy(rng.choice(ODD))
    return json.dumps(document, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        action = rng.randrange(4)
        if action == 0:
            changed[at : at + rng.randint(1, 8)] = b""
        elif action == 1:
            changed[at:at] = rng.choice(
                [b"\0", b'"', b"[", b"}", b",", b"9" * 310, b"\\ud800", b"\xff", b" "]
            )
        elif action == 2:
            other = rng.randrange(len(changed) + 1)
            changed[at:at] = changed[other : other + rng.randint(1, 40)]
        elif at < len(changed):
            changed[at] = rng.randrange(256)
    return bytes(changed)


def mutant(rng: random.Random, blob: bytes) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return sealed(bytearray(change_bytes(rng, blob)))
    metadata_at, metadata_size = struct.unpack_from("<II", blob, 4)
    metadata = blob[metadata_at : metadata_at + metadata_size]
    if kind == 1:
        return sealed(with_metadata(blob, change_bytes(rng, metadata)))
    return sealed(with_metadata(blob, change_document(rng, json.loads(metadata))))


@pytest.fixture
def agree(plugin: ctypes.CDLL) -> Callable[[bytes], bool]:
    """Whether both readers take a blob; fails where they differ."""
    out = ctypes.create_string_buffer(1 << 20)

    def check(blob: bytes) -> bool:
        code = plugin.trt_et_describe_blob(blob, len(blob), out, len(out))
        text = out.value.decode()
        refused, expected = "", None
        try:
            expected = facts_of(blob)
        except BlobError as error:
            refused = str(error)
        assert (code > 0) is not bool(refused), (blob, text, refused)
        if refused:
            assert code == -INVALID_PROGRAM
            return False
        found = json.loads(text)
        del found["engine_offset"]
        assert found == expected, blob
        return True

    return check


SMALL = [name for name in GOOD if len(GOOD[name]) < 4000]


def test_readers_take_the_same_mutants(agree: Callable[[bytes], bool]) -> None:
    rng = random.Random(20)
    seeds = [GOOD[name] for name in SMALL]
    taken = sum(agree(mutant(rng, rng.choice(seeds))) for _ in range(MUTANTS))
    assert MUTANTS // 20 < taken < MUTANTS // 2  # Both answers are common.


@pytest.mark.parametrize("name", ["aliased", "dynamic", "Torch-TensorRT's"])
def test_readers_agree_on_every_truncation(agree: Callable[[bytes], bool], name: str) -> None:
    blob = GOOD[name]
    for length in range(len(blob)):
        agree(blob[:length])
        agree(sealed(bytearray(blob[:length])))


@pytest.mark.parametrize("field", HEADER)
@pytest.mark.parametrize("name", ["ours", "Torch-TensorRT's", "no engine bytes"])
def test_readers_agree_on_lengths_and_offsets(
    agree: Callable[[bytes], bool], name: str, field: str
) -> None:
    blob = GOOD[name]
    at, size = HEADER[field]
    limit = 1 << 8 * size
    now = int.from_bytes(blob[at : at + size], "little")
    ends = [len(blob), len(blob) - now, limit - now, limit - len(blob), limit // 2, limit, 16 << 20]
    near = {end + step for end in [0, 32, now, *ends] for step in (-17, -16, -1, 0, 1, 15, 16, 17)}
    taken = 0
    for value in sorted(value % limit for value in near):
        changed = bytearray(blob)
        changed[at : at + size] = value.to_bytes(size, "little")
        taken += agree(sealed(changed))
        taken += agree(bytes(changed))
    assert taken > 0


@pytest.mark.parametrize("name", [name for name in BAD if len(BAD[name]) > 32])
def test_readers_agree_on_what_follows_a_bad_blob(
    agree: Callable[[bytes], bool], name: str
) -> None:
    assert not agree(BAD[name])
    agree(sealed(bytearray(BAD[name])))
