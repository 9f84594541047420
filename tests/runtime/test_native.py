"""Runs the native tests, where they have been built (tests/runtime/native/CMakeLists.txt)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.native_blobs import HEADER

ROOT = Path(__file__).parents[2]


def test_native(programs: dict[str, Any], tmp_path: Path) -> None:
    named = os.environ.get("TRT_ET_NATIVE_TESTS")
    built = Path(named or ROOT / "build/tests/tests/runtime/native/trt_et_native_tests")
    if not built.is_file():
        pytest.skip(
            "native tests are not built: cmake -S . -B build/tests -G Ninja "
            "-DTRT_ET_BUILD_TESTS=ON && cmake --build build/tests --target trt_et_native_tests"
        )
    program = programs["mlp"].path.read_bytes()
    at = program.index(b"TRRF")
    _, _, _, engine_at, engine_size, *_ = HEADER.unpack_from(program, at)
    blob = tmp_path / "blob"
    blob.write_bytes(program[at : at + engine_at + engine_size])
    done = subprocess.run(
        [str(built), str(blob)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == "native tests passed"
