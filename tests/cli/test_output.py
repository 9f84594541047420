"""The files that a command writes."""

from __future__ import annotations

from pathlib import Path

from trt_et.cli.output import write_output


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path):
    file, link = tmp_path / "model.pte", tmp_path / "newest.pte"
    file.write_bytes(b"old")
    link.symlink_to(file.name)
    write_output(link, lambda opened: opened.write(b"new"))
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    write_output(Path("/dev/null"), lambda opened: opened.write(b"new"))
    assert Path("/dev/null").is_char_device()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pte", "newest.pte"]
