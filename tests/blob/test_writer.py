"""Blobs whose engine comes in pieces: the same bytes, and no second copy in memory."""

from __future__ import annotations

import errno
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sample_engine import ENGINE, INFO
from trt_et.blob import writer as blob_writer
from trt_et.blob.writer import BlobWriter
from trt_et.engine_info import decode_blob, encode_blob
from trt_et.errors import BuilderError

MIB = 1 << 20


def write(pieces):
    with BlobWriter(INFO) as writer:
        assert [writer.write(piece) for piece in pieces] == [len(piece) for piece in pieces]
        return writer.finish()


@given(st.lists(st.binary(max_size=70), max_size=8))
@settings(max_examples=50, deadline=None)
def test_pieces_give_the_blob_of_the_whole(pieces):
    assert write(pieces) == encode_blob(b"".join(pieces), INFO)


def test_an_engine_on_disk_gives_the_same_blob(monkeypatch):
    monkeypatch.setattr(blob_writer, "_IN_MEMORY", 8)
    monkeypatch.setattr(blob_writer, "_CHUNK", 5)
    assert write([ENGINE, memoryview(ENGINE)]) == encode_blob(ENGINE * 2, INFO)


def test_the_blob_is_the_only_copy_in_memory():
    piece = bytes(MIB)
    tracemalloc.start()
    try:
        blob = write([piece] * 64)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(decode_blob(blob).engine) == 64 * MIB
    assert peak < 64 * MIB + 2 * blob_writer._IN_MEMORY


def test_a_full_disk_is_named(monkeypatch):
    with BlobWriter(INFO) as writer:

        class Full:
            def rollover(self):
                pass

            def write(self, piece):
                raise OSError(errno.ENOSPC, "No space left on device")

            def close(self):
                pass

        monkeypatch.setattr(writer, "_file", Full())
        with pytest.raises(BuilderError, match=r"No space left on device.*TMPDIR"):
            writer.write(b"engine")
