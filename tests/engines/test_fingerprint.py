"""What decides the engines of this version: every Python file but the runtime's."""

from __future__ import annotations

import pytest

from trt_et.engines.fingerprint import code_digest


@pytest.fixture
def package(tmp_path):
    for name in ("backend.py", "engines/base.py", "conversion/operators/pooling.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


def test_every_file_what_it_holds_and_where_it_stands_change_the_digest(package):
    digests = [code_digest(package)]
    for name in ("new.py", "new/file.py", "engines/deep/in/a/folder.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("")
        digests.append(code_digest(package))
    path = package / "conversion/operators/pooling.py"
    path.write_text("changed = True\n")
    digests.append(code_digest(package))
    path.rename(package / "conversion/pooling.py")
    digests.append(code_digest(package))
    assert len(set(digests)) == 6


def test_the_runtime_and_other_files_do_not_count(package):
    before = code_digest(package)
    (package / "runtime").mkdir()
    (package / "runtime" / "plugin.py").write_text("import ctypes\n")
    (package / "engines" / "notes.txt").write_text("notes\n")
    assert code_digest(package) == before
