"""``trt-et cache`` and ``trt-et inspect``, as a user types them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.support.builders import CheapBuilder, build
from tests.support.lowering import lower_case
from trt_et import EngineCache
from trt_et.cli import app


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def cache(tmp_path) -> EngineCache:
    cache = EngineCache(tmp_path / "cache")
    build(CheapBuilder(version="1"), cache)
    build(CheapBuilder(version="2"), cache, device=3)
    return cache


def test_list_shows_each_engine_and_the_total(cache):
    said = run("cache", "list", "--cache", cache.folder)
    first, second = cache.entries()
    assert said.index(first.key[:12]) < said.index(second.key[:12])
    assert "cuda:3" in said
    assert "input0 float32[2, 4]" in said
    assert "2 engines" in said
    assert str(cache.folder) in said


def test_verify_removes_what_is_corrupt_and_fails(cache):
    assert "2 engines are whole, 0 were not" in run("cache", "verify", "--cache", cache.folder)
    bad = cache.entries()[0]
    bad.path.write_bytes(bad.path.read_bytes()[:-1])
    assert "unreadable" in run("cache", "list", "--cache", cache.folder)
    said = run("cache", "verify", "--cache", cache.folder, code=1)
    assert bad.key[:12] in said
    assert "1 engines are whole, 1 were not" in said
    assert not bad.path.exists()


def test_clear_empties_it(cache):
    assert "removed " in run("cache", "clear", "--cache", cache.folder)
    assert cache.entries() == []
    assert "0 engines" in run("cache", "list", "--cache", cache.folder)


def test_path_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TRT_ET_CACHE", str(tmp_path))
    assert run("cache", "path").strip() == str(tmp_path)
    monkeypatch.setenv("TRT_ET_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run("cache", "path").strip() == str(tmp_path / "trt-et")
    monkeypatch.setenv("TRT_ET_CACHE_SIZE", "huge")
    assert "'huge' is no size" in run("cache", "path", code=1)


def test_inspect_shows_engines_devices_and_what_stays_on_the_cpu(tmp_path):
    file = tmp_path / "split.pte"
    file.write_bytes(lower_case("split", excluded_ops=["aten.cumsum"], device="cuda:1"))
    said = run("inspect", file)
    assert "method forward" in said
    assert "delegate 1: TensorRTBackend" in said
    assert "engine of reference" in said
    assert "in  input0: float32 [2, 4]" in said
    assert "aten::cumsum.out" in said
    assert "cuda:1: " in said


def test_inspect_of_something_else_is_one_line(tmp_path):
    file = tmp_path / "x.pte"
    assert "cannot be read: No such file" in run("inspect", file, code=1)
    file.write_bytes(b"not a program")
    assert "is no ExecuTorch program" in run("inspect", file, code=1)


def test_the_cache_commands_import_no_torch(tmp_path):
    code = f"""
import sys
from trt_et.cli import app
app(["cache", "list", "--cache", {str(tmp_path)!r}], standalone_mode=False)
print([name for name in ("torch", "tensorrt") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
