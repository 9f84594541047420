"""Engines over 2 GiB: blobs and files that hold one, without copies that nobody needs.

The engine is all zeros: its pages are never written, so they take neither memory nor disk.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from crc32c import crc32c
from executorch.exir import to_edge_transform_and_lower

from tests.support.lowering import export
from trt_et import TensorRTPartitioner
from trt_et.engine_info import (
    CHECKSUM_SLICE,
    EngineInfo,
    decode_blob,
    encode_front,
    parse_device_id,
)
from trt_et.engines import EngineBuilder
from trt_et.errors import BlobError
from trt_et.inspection import inspect_program

GIB = 1 << 30
SIZE = 2 * GIB + (1 << 20) + 5


def own_memory() -> int:
    """This process's memory, without what it has mapped from files."""
    info = psutil.Process().memory_info()
    return info.rss - info.shared


class Prebuilt(EngineBuilder):
    """An engine of zeros, in a bytes object whose pages the system has not made up yet."""

    name = "prebuilt"

    def build(self, request):
        info = EngineInfo(request.program.bindings, request.device_id, self.name)
        with mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as zeros:
            front = encode_front(replace(info, sha256=hashlib.sha256(zeros).hexdigest()), SIZE)
            front[CHECKSUM_SLICE] = crc32c(zeros, crc32c(front)).to_bytes(4, "little")
        blob = bytes(len(front) + SIZE)
        ctypes.memmove(id(blob) + bytes.__basicsize__ - 1, bytes(front), len(front))
        return blob


class SparseFile:
    """Leaves holes where zeros are written."""

    BLOCK = 1 << 20
    ZEROS = bytes(BLOCK)

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")

    def write(self, data) -> int:
        view = memoryview(data).cast("B")
        for at in range(0, len(view), self.BLOCK):
            block = view[at : at + self.BLOCK]
            if bytes(block) == self.ZEROS[: len(block)]:
                self.file.seek(len(block), 1)
            else:
                self.file.write(block)
        return len(view)

    def close(self) -> None:
        self.file.truncate()
        self.file.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A .pte with an engine over 2 GiB, and by how much this process grew at each step to it."""
    before = own_memory()
    grown = []
    manager = to_edge_transform_and_lower(
        export("order"), partitioner=[TensorRTPartitioner(builder=Prebuilt(), device="cuda:3")]
    )
    grown.append(own_memory() - before)
    program = manager.to_executorch()
    grown.append(own_memory() - before)
    path = tmp_path_factory.mktemp("large") / "large.pte"
    file = SparseFile(path)
    program.write_to_file(file)
    file.close()
    grown.append(own_memory() - before)
    yield path, grown
    path.unlink()


def test_it_is_exported_and_written_without_a_copy(large):
    path, grown = large
    assert path.stat().st_size > SIZE
    assert path.stat().st_blocks * 512 < GIB // 4
    assert max(grown) < GIB // 2


def test_a_mapped_file_is_inspected_without_a_copy(large):
    path, _ = large
    before = own_memory()
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    ((delegate,),) = (method.delegates for method in inspect_program(mapped))
    assert delegate.problem == ""
    assert delegate.engine_size == SIZE
    assert delegate.engine.builder == "prebuilt"
    assert ("target_device", b"cuda:3") in delegate.compile_specs
    assert parse_device_id(delegate.blob) == 3
    assert own_memory() - before < GIB // 4


def test_inspecting_a_file_reads_it_in_little_memory(large):
    path, _ = large
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from trt_et.cli import app\n"
        "app(['inspect', sys.argv[1]], standalone_mode=False)\n"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *printed, peak = done.stdout.splitlines()
    assert " prebuilt " in "\n".join(printed)
    assert int(peak) < 200 << 10  # KiB.


def test_a_byte_beyond_2_gib_counts(large):
    path, _ = large
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    start = mapped.find(b"TR01")
    blob = memoryview(mapped)[start:]
    mapped[start + 2 * GIB + 12345] = 1
    with pytest.raises(BlobError, match="corrupt: checksum"):
        decode_blob(blob)
    with pytest.raises(BlobError, match="lies outside"):
        decode_blob(blob[: 2 * GIB], verify=False)
