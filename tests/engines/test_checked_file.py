"""Small files that several processes replace: the old one or the new one, never a part."""

from __future__ import annotations

from pathlib import Path

import pytest

from trt_et.engines import checked_file
from trt_et.engines.checked_file import locked, read_checked, write_checked


def write(path: Path, data: bytes) -> None:
    with locked(path):
        write_checked(path, data)


def test_what_was_written_is_read(tmp_path):
    write(tmp_path / "new" / "a.json", b"before")
    write(tmp_path / "new" / "a.json", b"two\nlines\n" + bytes(1000))
    assert read_checked(tmp_path / "new" / "a.json") == b"two\nlines\n" + bytes(1000)
    assert read_checked(tmp_path / "new" / "b.json") == b""


def test_every_damaged_byte_and_every_cut_is_noticed(tmp_path, caplog):
    path = tmp_path / "a.json"
    write(path, b"some answers")
    whole = path.read_bytes()
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        assert read_checked(path) == b""
        path.write_bytes(whole[:index])
        assert read_checked(path) == b""
    assert "corrupt" in caplog.text
    path.write_bytes(whole)
    assert read_checked(path) == b"some answers"


def test_a_writer_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write(path, b"old")

    def fails(*_):
        raise OSError(28, "No space left on device")

    for step in ("trt_et.engines.checked_file.os.fsync", "pathlib.Path.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(step, fails)
            with pytest.raises(OSError, match="No space"):
                write(path, b"new")
        assert read_checked(path) == b"old"
        assert {p.name for p in tmp_path.iterdir()} <= {"a.json", "a.lock"}


def test_what_a_killed_writer_left_is_removed(tmp_path):
    path = tmp_path / "a.json"
    (tmp_path / "a.json.1234.part").write_bytes(b"half")
    (tmp_path / "b.json.1234.part").write_bytes(b"another file's")
    write(path, b"new")
    assert {p.name for p in tmp_path.iterdir()} == {"a.json", "a.lock", "b.json.1234.part"}


def test_a_lock_that_never_comes_free_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write(path, b"old")
    monkeypatch.setattr(checked_file, "_PATIENCE", 0.05)
    with locked(path), pytest.raises(OSError, match=r"a\.lock"):
        write(path, b"new")
    assert read_checked(path) == b"old"
