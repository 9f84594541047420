"""Mutants of engine blobs: of their bytes, their metadata's text, and their metadata's values."""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

from crc32c import crc32c

__all__ = ["mutant", "sealed"]

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
