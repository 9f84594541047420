"""``trt-et cache``, as a user types it."""

from __future__ import annotations

import json

import pytest

from tests.support.builders import CheapBuilder, build
from tests.support.cli.command_line import run
from trt_et import EngineCache


@pytest.fixture
def cache(tmp_path) -> EngineCache:
    cache = EngineCache(tmp_path / "cache")
    build(CheapBuilder(version="1"), cache)
    build(CheapBuilder(version="2"), cache, device=3)
    return cache


def test_list_shows_each_engine_and_the_total(cache):
    printed = run("cache", "list", "--cache", cache.folder)
    first, second = cache.entries()
    assert printed.index(first.key[:12]) < printed.index(second.key[:12])
    assert "cuda:3" in printed
    assert "input0 float32[2, 4]" in printed
    assert "2 engines" in printed
    assert str(cache.folder) in printed


def test_verify_removes_what_is_corrupt_and_fails(cache):
    assert "2 engines are intact, 0 were not" in run("cache", "verify", "--cache", cache.folder)
    bad = cache.entries()[0]
    bad.path.write_bytes(bad.path.read_bytes()[:-1])
    assert "unreadable" in run("cache", "list", "--cache", cache.folder)
    printed = run("cache", "verify", "--cache", cache.folder, code=1)
    assert bad.key[:12] in printed
    assert "1 engines are intact, 1 were not" in printed
    assert not bad.path.exists()


def test_clear_empties_it(cache):
    arguments = ("cache", "clear", "--cache", cache.folder)
    assert "Remove 2 engines" in run(*arguments, code=1, input="n\n")
    assert len(cache.entries()) == 2
    assert "removed " in run(*arguments, "--yes")
    build(CheapBuilder(version="1"), cache)
    assert "removed " in run(*arguments, input="y\n")
    assert cache.entries() == []
    assert "0 engines" in run("cache", "list", "--cache", cache.folder)
    assert "removed 0 B" in run(*arguments)  # Without a question.
    assert run("cache", "list", "--cache", cache.folder / "x").endswith("x, which does not exist\n")


def test_path_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TRT_ET_CACHE", str(tmp_path))
    assert run("cache", "path").strip() == str(tmp_path)
    monkeypatch.setenv("TRT_ET_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run("cache", "path").strip() == str(tmp_path / "trt-et")
    monkeypatch.setenv("TRT_ET_CACHE_SIZE", "huge")
    assert "cache size 'huge' cannot be read" in run("cache", "path", code=2)


def test_a_file_is_no_cache(tmp_path):
    (tmp_path / "file").touch()
    message = run("cache", "list", "--cache", tmp_path / "file", code=2)
    assert message.strip().endswith(f"the engine cache's folder {tmp_path / 'file'} is a file")


def test_list_is_not_cropped_where_it_is_piped(cache):
    line = run("cache", "list", "--cache", cache.folder).splitlines()[1]
    assert "output0 float32" in line
    rows = json.loads(run("cache", "list", "--cache", cache.folder, "--json"))["engines"]
    assert [row["targets"] for row in rows] == ["cuda:3", "cuda:0"]
