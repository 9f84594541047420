"""The build of the native part."""

from __future__ import annotations

import pytest

from tests.support.native_environment import CMAKE, ROOT, run


@pytest.mark.skipif(not CMAKE.is_file(), reason="cmake is not installed in this environment")
def test_a_build_without_a_compiler_names_the_package_to_install(tmp_path):
    options = ("-S", ROOT, "-B", tmp_path, "-G", "Ninja")
    done = run(CMAKE, *options, env={"PATH": str(tmp_path)}, timeout=60)
    assert done.returncode != 0
    message = " ".join(done.stderr.split())
    assert "needs a C++17 compiler, and none is on PATH. Install one: sudo apt-get" in message
