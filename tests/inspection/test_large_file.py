"""A program of more than 2 GiB is inspected in little memory, its checksum included."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

from crc32c import crc32c

from tests.support.cli.sample_programs import program
from trt_et.inspection import inspect_program

ENGINE_SIZE_AT = 16  # In a blob's header (docs/blob.md).
CHECKSUM_AT = 28
LARGE = (2 << 30) + (1 << 20)
PIECE = bytes(64 << 20)


def checksum_with_zeros(front: bytes, zeros: int) -> int:
    value = crc32c(front)
    while zeros:
        count = min(zeros, len(PIECE))
        value = crc32c(memoryview(PIECE)[:count], value)
        zeros -= count
    return value


def grown(pte: bytes, zeros: int, file: Path) -> None:
    """The program with zeros behind its only engine, in a sparse file."""
    (delegate,) = inspect_program(pte)[0].delegates
    blob = bytearray(delegate.blob)
    start = delegate.offset
    assert not any(pte[start + len(blob) :]), "the engine is not at the end"
    (size,) = struct.unpack_from("<Q", blob, ENGINE_SIZE_AT)
    struct.pack_into("<Q", blob, ENGINE_SIZE_AT, size + zeros)
    struct.pack_into("<I", blob, CHECKSUM_AT, 0)
    struct.pack_into("<I", blob, CHECKSUM_AT, checksum_with_zeros(bytes(blob), zeros))
    # The size of its segment, and that of all segments in the file's header.
    known, larger = (struct.pack("<Q", len(blob) + more) for more in (0, zeros))
    assert pte[:start].count(known) == 2
    front = pte[:start].replace(known, larger)
    with file.open("wb") as stream:
        stream.write(front + blob)
        stream.truncate(len(front) + len(blob) + zeros)


# The peak of this program alone: that of a child process counts what it was forked from.
SCRIPT = """
import atexit, pathlib, runpy, sys
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: print(*[l for l in status.read_text().splitlines() if "VmHWM" in l]))
runpy.run_module("trt_et.cli", run_name="__main__")
"""


def inspected(file: Path) -> tuple[int, str, int]:
    """Exit status, output and peak memory in bytes of ``trt-et inspect``."""
    command = [sys.executable, "-c", SCRIPT, "inspect", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", done.stdout)
    return done.returncode, done.stdout + done.stderr, int(kilobytes) << 10


def test_a_file_of_more_than_two_gigabytes_takes_little_memory(tmp_path):
    file = tmp_path / "large.pte"
    grown(program("rtx"), LARGE, file)
    status, printed, memory = inspected(file)
    assert status == 0, printed
    assert "engine of tensorrt_rtx" in printed
    assert memory < 200 << 20


def test_damage_behind_two_gigabytes_is_found(tmp_path):
    file = tmp_path / "large.pte"
    grown(program("rtx"), LARGE, file)
    with file.open("r+b") as stream:
        stream.seek(-5, os.SEEK_END)
        stream.write(b"\1")
    status, printed, _ = inspected(file)
    assert status == 1
    assert "checksum" in printed
