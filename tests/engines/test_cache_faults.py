"""The engine cache in a hard world: failing file calls, vanishing folders, many writers, others."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.builders import CheapBuilder, build
from trt_et.engines.cache import EngineCache
from trt_et.engines.support_check import SupportCache
from trt_et.engines.timing_cache import TimingCache

fork = multiprocessing.get_context("fork")
# What Python reports before each call that touches files.
FILE_EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.listdir", "os.scandir", "os.utime")


class Faults:
    """Lets the n-th file call below a folder fail."""

    def __init__(self) -> None:
        self.folder, self.left, self.reached = "", 0, 0
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left == 0 or event not in FILE_EVENTS or not arguments:
            return
        if not str(arguments[0]).startswith(self.folder):
            return
        self.left -= 1
        if self.left == 0:
            raise OSError(28, "No space left on device")

    @contextmanager
    def at(self, folder: Path, n: int) -> Iterator[None]:
        self.folder, self.left = str(folder), n
        try:
            yield
        finally:
            self.reached += self.left == 0
            self.left = 0


@pytest.fixture(scope="module")
def faults() -> Faults:
    return Faults()


@pytest.mark.reliability("R5")
def test_whichever_file_call_fails_the_engine_is_right_and_the_next_export_works(tmp_path, faults):
    expected = build(CheapBuilder()).blob
    for n in range(1, 200):
        before = faults.reached
        cache = EngineCache(tmp_path / str(n))
        for _ in range(2):  # A new folder, then an entry that is there.
            with faults.at(tmp_path, n):
                assert build(CheapBuilder(), cache).blob == expected
        again = EngineCache(cache.folder)
        assert build(CheapBuilder(), again).blob == expected
        assert build(CheapBuilder(), again).origin == "cached"
        assert again.verify() == []
        assert list(cache.folder.rglob("*.part")) == []
        if faults.reached == before:
            break
    assert 10 < n < 199


@pytest.mark.reliability("R5")
def test_whichever_file_call_fails_answers_and_timings_are_kept_or_not(tmp_path, faults):
    config = SimpleNamespace(
        create_timing_cache=lambda data: data,
        set_timing_cache=lambda *_: True,
        get_timing_cache=lambda: SimpleNamespace(serialize=lambda: b"timings"),
    )
    for n in range(1, 100):
        before = faults.reached
        folder = tmp_path / str(n)
        with faults.at(tmp_path, n):
            answers = SupportCache(folder, "versions")
            answers["a"] = "a reason"
            answers.save()
            timings = TimingCache(folder, "gpu")
            timings.load(config)
            timings.save(config)
        answers["b"] = None
        answers.save()
        assert "b" in SupportCache(folder, "versions")
        if faults.reached == before:
            break
    assert 5 < n < 99


@pytest.mark.reliability("R11")
def test_16_writers_at_once_build_one_engine_once(tmp_path):
    cache, log = EngineCache(tmp_path / "cache"), tmp_path / "log"
    build(CheapBuilder())

    def export() -> None:
        blobs = {build(CheapBuilder(log, repeat=1000), cache, device=d).blob for d in range(4)}
        os._exit(7 if len(blobs) == 4 else 1)

    children = [fork.Process(target=export) for _ in range(16)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [7] * 16
    assert len(log.read_text().splitlines()) == 4
    assert len(cache.entries()) == 4
    assert cache.verify() == []


@pytest.mark.reliability("R11")
def test_a_folder_that_vanishes_is_made_again(tmp_path):
    class Vanishing(CheapBuilder):
        def build(self, request: Any) -> bytes:
            shutil.rmtree(tmp_path / "cache")
            return super().build(request)

    cache = EngineCache(tmp_path / "cache")
    first = build(CheapBuilder(), cache, device=1)
    assert build(Vanishing(), cache).origin == "built"
    assert build(CheapBuilder(), cache, device=1).blob == first.blob
    assert build(CheapBuilder(), cache, device=1).origin == "cached"


@pytest.mark.reliability("R11")
def test_a_folder_that_can_only_be_read_serves_its_engines(tmp_path, caplog):
    cache = EngineCache(tmp_path / "cache")
    blob = build(CheapBuilder(), cache).blob
    # Root may write anywhere: another user is asked.
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)

    def as_somebody_else() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        else:
            (tmp_path / "cache" / "v1").chmod(0o555)
        with caplog.at_level(logging.WARNING, "trt_et"):
            known = build(CheapBuilder(), cache)
            unknown = build(CheapBuilder(), cache, device=5)
        fine = (known.blob, known.origin, unknown.origin) == (blob, "cached", "built")
        os._exit(7 if fine else 1)

    child = fork.Process(target=as_somebody_else)
    child.start()
    child.join(60)
    assert child.exitcode == 7


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_made_for_their_user_alone(tmp_path):
    old = os.umask(0)
    try:
        cache = EngineCache(tmp_path / "new" / "cache")
        build(CheapBuilder(), cache)
        answers = SupportCache(tmp_path / "newer" / "answers", "versions")
        answers["a"] = None
        answers.save()
    finally:
        os.umask(old)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(made) > 5
    assert {mode(path) for path in made} == {0o700}


@pytest.mark.parametrize("open_to", [0o020, 0o002])
def test_the_users_folder_is_not_used_where_others_may_write(
    tmp_path, monkeypatch, caplog, open_to
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build(CheapBuilder(), EngineCache()).origin == "built"
    assert build(CheapBuilder(), EngineCache()).origin == "cached"
    (tmp_path / "trt-et").chmod(0o700 | open_to)
    assert build(CheapBuilder(), EngineCache()).origin == "built"
    assert "it is not this user's alone" in caplog.text
    # Whoever names a folder has chosen it.
    assert build(CheapBuilder(), EngineCache(tmp_path / "trt-et")).origin == "cached"


def test_a_lock_that_never_comes_free_costs_the_lock_and_not_the_engine(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("trt_et.engines.cache._PATIENCE", 0.2)
    holder, cache = EngineCache(tmp_path), EngineCache(tmp_path)
    key = "0" * 64
    held = holder.lock(key, wait=True)
    assert held is not None
    assert cache.lock(key, wait=False) is None
    waited = cache.lock(key, wait=True)
    assert waited is not None
    assert not waited.is_locked
    assert "is not free after 0 s; the engine is built without it" in caplog.text
    waited.release()
    held.release()
    again = cache.lock(key, wait=True)
    assert again is not None
    assert again.is_locked
    again.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_root_makes_nothing_in_the_home_of_another_user(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    os.chown(tmp_path, 1000, 1000)
    assert build(CheapBuilder(), EngineCache()).origin == "built"
    assert build(CheapBuilder(), EngineCache()).origin == "built"
    assert "root writes nothing into another user's home" in caplog.text
    assert not list(tmp_path.iterdir())
    # Whoever names a folder has chosen it.
    assert build(CheapBuilder(), EngineCache(tmp_path / "named")).origin == "built"
    assert build(CheapBuilder(), EngineCache(tmp_path / "named")).origin == "cached"
