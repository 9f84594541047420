"""The build of the native part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CMAKE = Path(sys.executable).with_name("cmake")


@pytest.mark.skipif(not CMAKE.is_file(), reason="cmake is not installed in this environment")
def test_a_build_without_a_compiler_names_the_package_to_install(tmp_path):
    done = subprocess.run(
        [str(CMAKE), "-S", str(ROOT), "-B", str(tmp_path), "-G", "Ninja"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    message = " ".join(done.stderr.split())
    assert "needs a C++17 compiler, and none is on PATH. Install one: sudo apt-get" in message
