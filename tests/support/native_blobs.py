"""Engine blobs made by hand after docs/blob.md, independent of the encoder under test."""

from __future__ import annotations

import json
import struct
from typing import Any

HEADER = struct.Struct("<4sIIIQBBHI")


def crc32c(data: bytes) -> int:
    """Bit by bit, from the polynomial: what the fast ones are held to."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def binding(name: str, shape: list[int], *, is_input: bool, **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "float32", "shape": shape, "is_input": is_input, **more}


def document(**changes: Any) -> dict[str, Any]:
    """Metadata of a small, valid blob; a change to None removes the key."""
    facts: dict[str, Any] = {
        "io_bindings": [
            binding("x", [2, 3], is_input=True),
            binding("y", [2, 3], is_input=False),
        ],
        "hardware_compatible": False,
        "device_id": 0,
        "serialized_metadata": "",
        "target_platform": "linux_x86_64",
        "builder": "tensorrt_rtx",
        "library_version": "1.5.0.114",
        "compute_capabilities": ["8.6"],
        "gpu_name": "",
        "sha256": "0" * 64,
    }
    facts.update(changes)
    return {key: value for key, value in facts.items() if value is not None}


def pack(
    metadata: dict[str, Any] | bytes,
    engine: bytes = b"engine bytes",
    *,
    magic: bytes = b"TR01",
    checksum: bool = True,
    tail: bytes = b"",
    **header: int,
) -> bytes:
    """Pack a blob. ``header`` overrides metadata_at, metadata_size, engine_at, engine_size."""
    if isinstance(metadata, dict):
        metadata = json.dumps(metadata, separators=(",", ":")).encode()
    engine_at = -(-(32 + len(metadata)) // 16) * 16
    fields = {
        "metadata_at": 32,
        "metadata_size": len(metadata),
        "engine_at": engine_at,
        "engine_size": len(engine),
        **header,
    }
    body = metadata.ljust(engine_at - 32, b"\0") + engine + tail

    def head(value: int) -> bytes:
        return HEADER.pack(magic, *fields.values(), 1, int(checksum), 0, value)

    return head(crc32c(head(0) + body) if checksum else 0) + body


def reseal(blob: bytes) -> bytes:
    """The blob with the right checksum."""
    zeroed = blob[:28] + bytes(4) + blob[32:]
    return blob[:28] + struct.pack("<I", crc32c(zeroed)) + blob[32:]


def patch_program(program: bytes, old: bytes, new: bytes) -> bytes:
    """Replace text in the metadata of the first reference engine of a .pte, keeping all lengths.

    JSON takes spaces between tokens, so a shorter ``new`` is padded; the checksum is made right.
    """
    at = program.index(b"TRRF")
    _, metadata_at, metadata_size, engine_at, engine_size, *_ = HEADER.unpack_from(program, at)
    blob = program[at : at + engine_at + engine_size]
    metadata = blob[metadata_at : metadata_at + metadata_size]
    assert old in metadata, metadata
    assert len(new) <= len(old)
    metadata = metadata.replace(old, new.ljust(len(old)), 1)
    blob = reseal(blob[:metadata_at] + metadata + blob[metadata_at + metadata_size :])
    return program[:at] + blob + program[at + len(blob) :]
