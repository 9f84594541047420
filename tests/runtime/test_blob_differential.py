"""Mutants of engine blobs: both readers take the same ones, with the same meaning."""

from __future__ import annotations

import ctypes
import json
import random
from collections.abc import Callable

import pytest

from tests.support.blobs.mutants import mutant, sealed
from tests.support.blobs.vectors import BAD, GOOD, facts_of
from tests.support.native_blobs import pack
from trt_et.errors import BlobError

MUTANTS = 6000
INVALID_PROGRAM = 0x23
HEADER = {
    "metadata_at": (4, 4),
    "metadata_size": (8, 4),
    "engine_at": (12, 4),
    "engine_size": (16, 8),
}


@pytest.fixture
def agree(plugin: ctypes.CDLL) -> Callable[[bytes], bool]:
    """Whether both readers take a blob; fails where they differ."""
    buffers = [ctypes.create_string_buffer(1 << 20)]

    def check(blob: bytes) -> bool:
        code = plugin.trt_et_describe_blob(blob, len(blob), buffers[0], len(buffers[0]))
        if code >= len(buffers[0]):
            buffers[0] = ctypes.create_string_buffer(code + 1)
            plugin.trt_et_describe_blob(blob, len(blob), buffers[0], len(buffers[0]))
        text = buffers[0].value.decode()
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
        taken += agree(bytes(changed))
        taken += agree(sealed(changed))
    assert taken > 0


@pytest.mark.parametrize("name", [name for name in BAD if len(BAD[name]) > 32])
def test_readers_agree_on_what_follows_a_bad_blob(
    agree: Callable[[bytes], bool], name: str
) -> None:
    assert not agree(BAD[name])
    agree(sealed(bytearray(BAD[name])))


def bindings(count: int) -> bytes:
    entries = b",".join(b'{"name":"%d","is_input":true}' % index for index in range(count))
    return pack(b'{"io_bindings":[' + entries + b"]}", checksum=False)


def test_readers_agree_on_very_many_bindings(agree: Callable[[bytes], bool]) -> None:
    assert agree(bindings(20_000))
    assert not agree(bindings(1_000_000))  # More than 16 MiB of metadata.
