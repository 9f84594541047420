"""The engine cache: whole entries or none, whoever is killed, and never more than it may hold."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import struct
import time
from pathlib import Path

import pytest

from tests.support.builders import CheapBuilder, build, program
from tests.support.lowering import lower
from trt_et.engine_info import Binding, EngineInfo, decode_blob, encode_blob
from trt_et.engines import support_check
from trt_et.engines.cache import DEFAULT_MAX_BYTES, EngineCache, choose_cache, parse_size
from trt_et.engines.support_check import SupportCache
from trt_et.errors import OptionError

KEYS = [f"{index:x}" * 64 for index in range(10)]
fork = multiprocessing.get_context("fork")


def blob_of(size: int = 1000, fill: bytes = b"e") -> bytes:
    return encode_blob(fill * size, EngineInfo((Binding("input0", "float32", (1,), True),)))


@pytest.fixture
def cache(tmp_path) -> EngineCache:
    return EngineCache(tmp_path / "cache")


def store(cache: EngineCache, key: str, blob: bytes) -> None:
    lock = cache.lock(key, wait=True)
    cache.store(key, blob)
    lock.release()


def unfinished(cache: EngineCache) -> list[Path]:
    return list(cache.folder.rglob("*.part"))


def ours(caplog) -> list[logging.LogRecord]:
    """What this package said; torch says things the first time that something is exported."""
    return [record for record in caplog.records if record.name.startswith("trt_et")]


def entry_file(cache: EngineCache) -> Path:
    (entry,) = cache.entries()
    return entry.path


def test_what_was_stored_is_found_in_another_cache_object(cache):
    blob = blob_of()
    assert cache.load(KEYS[0]) is None
    assert not cache.folder.exists()
    store(cache, KEYS[0], blob)
    assert EngineCache(cache.folder).load(KEYS[0]) == blob
    assert cache.load(KEYS[1]) is None
    (entry,) = cache.entries()
    assert entry.key == KEYS[0]
    assert entry.info().bindings[0].name == "input0"
    assert unfinished(cache) == []


# tests/blob damages every byte.
DAMAGES = {
    "last byte": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "metadata": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
    "empty": lambda data: b"",
    "cut in the metadata": lambda data: data[:50],
    "cut by one byte": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
    "another file": lambda data: b"\x7fELF" * 1000,
}


@pytest.mark.reliability("R11")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_never_used_and_built_again(cache, damage, caplog):
    builder = CheapBuilder(repeat=20)
    blob = build(builder, cache).blob
    assert build(builder, cache).origin == "cached"
    entry_file(cache).write_bytes(damage(blob))
    assert len(cache.verify()) == 1
    assert cache.entries() == []
    build(builder, cache)
    entry_file(cache).write_bytes(damage(blob))
    with caplog.at_level(logging.WARNING, "trt_et"):
        again = build(builder, cache)
    assert (again.blob, again.origin) == (blob, "built")
    (record,) = ours(caplog)
    assert "built again" in record.getMessage()
    assert build(builder, cache).origin == "cached"
    assert len(builder.built) == 3


def test_a_blob_without_a_checksum_is_not_kept(cache):
    blob = bytearray(blob_of())
    (document,) = struct.unpack_from("<I", blob, 8)
    text = json.loads(blob[32 : 32 + document])
    del text["sha256"]
    plain = json.dumps(text, separators=(",", ":")).encode().ljust(document)
    blob[24:32], blob[32 : 32 + document] = bytes(8), plain
    assert not decode_blob(bytes(blob)).has_checksum
    store(cache, KEYS[0], bytes(blob))
    assert cache.entries() == []


@pytest.mark.reliability("R11")
def test_a_whole_entry_that_does_not_fit_the_partition_is_not_used(cache, caplog):
    builder = CheapBuilder()
    blob = build(builder, cache).blob
    (entry,) = cache.entries()
    store(cache, entry.key, blob_of())
    again = build(builder, cache)
    assert (again.blob, again.origin) == (blob, "built")
    assert "inputs" in caplog.text or "expected" in caplog.text
    assert build(builder, cache).origin == "cached"


@pytest.mark.reliability("R11")
def test_another_version_of_a_library_is_another_engine(cache):
    old, new = CheapBuilder(version="1"), CheapBuilder(version="2")
    build(old, cache)
    assert build(new, cache).origin == "built"
    assert build(old, cache).origin == "cached"
    assert len(cache.entries()) == 2


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    blob = blob_of()
    cache = EngineCache(tmp_path, max_bytes=3 * len(blob))
    for key in KEYS[:3]:
        store(cache, key, blob)
        time.sleep(0.01)
    assert cache.load(KEYS[0]) == blob
    store(cache, KEYS[3], blob)
    assert {entry.key for entry in cache.entries()} == {KEYS[0], KEYS[2], KEYS[3]}
    assert [entry.key for entry in cache.entries()] == [KEYS[3], KEYS[0], KEYS[2]]


def test_an_engine_larger_than_the_cache_displaces_nothing(tmp_path):
    cache = EngineCache(tmp_path, max_bytes=5000)
    store(cache, KEYS[0], blob_of())
    store(cache, KEYS[1], blob_of(10_000))
    assert [entry.key for entry in cache.entries()] == [KEYS[0]]


def in_child(function, *arguments) -> int:
    child = fork.Process(target=function, args=arguments)
    child.start()
    child.join(60)
    return child.exitcode


@pytest.mark.reliability("R11")
def test_a_full_disk_is_a_warning_and_leaves_nothing(cache, caplog):
    blob = build(CheapBuilder(repeat=100), cache, device=1).blob

    def with_a_full_disk() -> None:
        # What the system answers where a file cannot grow, without filling a disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        with caplog.at_level(logging.WARNING, "trt_et"):
            engines = [build(CheapBuilder(repeat=100), cache, device=i) for i in (2, 3)]
        (record,) = ours(caplog)
        assert "cannot be written" in record.getMessage()
        assert [engine.origin for engine in engines] == ["built", "built"]
        assert build(CheapBuilder(repeat=100), cache, device=1).blob == blob
        os._exit(7)

    assert in_child(with_a_full_disk) == 7
    assert len(cache.entries()) == 1
    assert unfinished(cache) == []


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = EngineCache(tmp_path / "file" / "cache")
    assert build(CheapBuilder(), cache).origin == "built"
    (record,) = ours(caplog)
    assert str(cache.folder) in record.getMessage()
    assert "TRT_ET_CACHE" in record.getMessage()


def test_a_full_file_of_answers_is_started_again_with_those_that_were_asked(cache, monkeypatch):
    monkeypatch.setattr(support_check, "_LIMIT", 2)
    monkeypatch.setattr(support_check, "fragment_signature", str)
    known = {}
    for asked in ("ab", "c", "c"):
        stored = SupportCache(cache.support_folder, "versions")
        known.update(stored)
        check = support_check.remembering(known, stored, lambda: lambda fragment: None)
        assert [check(each) for each in asked] == [None] * len(asked)
        stored.save()
    assert set(SupportCache(cache.support_folder, "versions")) == {"c"}
    assert set(known) == {"a", "b", "c"}


def build_and_remember(builder, cache, device) -> None:
    build(builder, cache, device=device)
    answers = SupportCache(cache.support_folder, "versions")
    for index in range(3000):
        answers[f"{device} {index}"] = "a reason"
    answers.save()


@pytest.mark.reliability("R11")
def test_a_build_process_killed_at_any_moment_leaves_a_valid_cache(cache, caplog):
    """SIGKILL somewhere in a build, then the cache is valid and the next build works."""
    kills = int(os.environ.get("TRT_ET_CACHE_KILLS", "10"))
    program()
    # 3 MiB, so that writing it takes a while.
    builder = CheapBuilder(repeat=20_000)
    start = time.perf_counter()
    expected = build(builder, cache, device=127).blob
    duration = time.perf_counter() - start
    random.seed(5)
    killed = found = 0
    for index in range(kills):
        builder, device = CheapBuilder(repeat=20_000, version=str(index // 100)), index % 100
        child = fork.Process(target=build_and_remember, args=(builder, cache, device))
        child.start()
        time.sleep(random.uniform(0, 1.5 * duration))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        killed += child.exitcode == -signal.SIGKILL
        assert [reason for _, reason in cache.verify()] == []
        assert len(SupportCache(cache.support_folder, "versions")) in (0, 3000)
        shutil.rmtree(cache.support_folder, ignore_errors=True)
        engine = build(builder, cache, device=device)
        found += engine.origin == "cached"
        assert len(engine.blob) in range(len(expected) - 8, len(expected) + 8)
        assert build(builder, cache, device=device).blob == engine.blob
    assert killed > kills // 5
    assert "corrupt" not in caplog.text
    assert len(cache.entries()) == kills + 1
    assert len(lower(program(), builder="reference", cache=cache)) > 0


def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(cache):
    folder = cache.folder / "v1" / "engines" / KEYS[0][:2]
    folder.mkdir(parents=True)
    for name, age in ((f"{KEYS[0]}.1.part", 0), ("old.1.part", 7200), ("new.1.part", 0)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age,) * 2)
    store(cache, KEYS[0], blob_of())  # By the holder of its lock.
    assert [path.name for path in unfinished(cache)] == ["new.1.part"]
    assert [entry.key for entry in cache.entries()] == [KEYS[0]]


def test_clear_removes_everything_and_says_how_much(cache):
    store(cache, KEYS[0], blob_of())
    cache.support_folder.mkdir()
    (cache.support_folder / "x.json").write_bytes(b"12345")
    assert cache.clear() == len(blob_of()) + 5
    assert cache.entries() == []
    assert list(cache.support_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "folder"),
    [("", None), ("0", None), ("off", None), ("1", "default"), ("on", "default"), ("~/x", "x")],
)
def test_the_environment_turns_it_on(said, folder, monkeypatch):
    monkeypatch.setenv("TRT_ET_CACHE", said)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    found = choose_cache(None)
    expected = {None: None, "default": Path("/somewhere/trt-et"), "x": Path("~/x").expanduser()}
    assert (found and found.folder) == expected[folder]
    assert choose_cache(False) is None
    chosen = EngineCache("y")
    assert choose_cache(chosen) is chosen
    assert choose_cache("z").folder == Path("z")
    with pytest.raises(OptionError, match="expected True"):
        choose_cache(3)


def test_its_size_is_an_argument_or_in_the_environment(monkeypatch):
    assert EngineCache("x").max_bytes == DEFAULT_MAX_BYTES
    monkeypatch.setenv("TRT_ET_CACHE_SIZE", "1.5 GiB")
    assert EngineCache("x").max_bytes == 3 << 29
    assert EngineCache("x", max_bytes=7).max_bytes == 7
    assert [parse_size(text) for text in ("12", "2k", "3MB", "1t")] == [12, 2048, 3 << 20, 1 << 40]
    for text in ("", "many", "-1", "1X"):
        with pytest.raises(OptionError, match=r"cannot be read.*TRT_ET_CACHE_SIZE"):
            parse_size(text)
    with pytest.raises(OptionError, match="max_bytes"):
        EngineCache("x", max_bytes=-1)
