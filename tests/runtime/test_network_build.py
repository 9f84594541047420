"""Engines of ONNX networks, built by the provider libraries with the fakes of TensorRT."""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

import trt_et.runtime
from tests.support import provider_table
from tests.support.kernel_texts import LOST_BIASES
from tests.support.native_environment import ROOT, environment
from tests.support.onnx.models import Payload, scaled
from tests.support.sampled import sampled

_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="not root: no other user")
_FLOCK = """
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int flock(int file, int operation) {
  const char *fails = getenv("FLOCK_FAILS"), *calls = getenv("FLOCK_CALLS");
  if (calls) {
    int all = open(calls, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(all, ".", 1) < 0) abort();
    close(all);
  }
  if (fails) return errno = atoi(fails), -1;
  return (int)syscall(SYS_flock, file, operation);
}
"""
FAKES = {
    "10": "libfake_nvinfer_10.so",
    "11": "libfake_nvinfer.so",
    "rtx": "libfake_tensorrt_rtx.so",
}


@pytest.fixture
def start(fakes):
    """Begin to build a payload in a process with one of the fakes."""

    def begin(case, which="11", env=None, command=()):
        library = trt_et.runtime.plugin_path().with_name(f"libtrt_et_tensorrt_{which}.so")
        case.write_text(json.dumps(json.loads(case.read_text()) | {"library": str(library)}))
        variables = {"TRT_ET_TENSORRT_LIBRARY": str(fakes / FAKES[which]), **(env or {})}
        return subprocess.Popen(
            [*command, sys.executable, "-m", "tests.support.provider_table", str(case)],
            cwd=ROOT,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    with process:
        try:
            out, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return json.loads(out)


@pytest.fixture
def build(start, tmp_path):
    def run(payload, which="11", env=None, command=(), **case):
        return result_of(start(payload.write(tmp_path / "payload", **case), which, env, command))

    return run


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new" / "engines"


@pytest.fixture
def shared(folder):
    """That folder, which other users can reach."""
    folder.mkdir(parents=True)
    for path in (folder, *folder.parents[:-2]):
        path.chmod(path.stat().st_mode | 0o055)
    return folder


@pytest.fixture
def flock(tmp_path):
    """A library to preload: flock() fails with the error of FLOCK_FAILS; each call is a byte."""
    source, library = tmp_path / "flock.c", tmp_path / "flock.so"
    source.write_text(_FLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return library


@pytest.fixture
def keep(build, folder):
    """Build with that folder of engines."""
    return functools.partial(build, engine_folder=str(folder))


@pytest.mark.parametrize("which", FAKES)
def test_the_engine_has_the_weights_and_the_bindings_ranges(build, which):
    result = build(scaled(3.0), which)
    assert "scale y x 3.0" in result["engine"], result
    assert result["engine"].endswith("profile\nrange x 1,8 2,8 4,8\n")


@pytest.mark.parametrize("version", ["10.0.1", "10.12.0", "10.13.0"])
def test_parsers_without_load_initializer_read_weights_from_files(
    build, tmp_path, monkeypatch, version
):
    """The fake ends the process at a slot that its version does not have."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    result = build(scaled(5.0), "10", {"TRT_ET_FAKE_VERSION": version})
    assert "scale y x 5.0" in result["engine"], result
    assert not list((tmp_path / "temporary").iterdir())


def test_weights_of_a_build_that_was_killed_are_removed(build, tmp_path):
    names = ("trt-et.part-killed", "trt-et.part-builds", "trt-et.part-longer-name", "mine")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "weight").write_text("bytes")
        if name != "trt-et.part-builds":
            os.utime(tmp_path / name, (1, 1))
    env = {"TRT_ET_FAKE_VERSION": "10.3.0", "TMPDIR": str(tmp_path)}
    assert "engine" in build(scaled(), "10", env)
    assert [name for name in names if not (tmp_path / name).exists()] == [names[0]]


@pytest.mark.parametrize("level", [2**40, 2**31, -1])
def test_an_optimization_level_is_not_cut(build, level):
    error = build(scaled(), network={"optimization_level": level})["error"]
    assert error == f"0x23: optimization_level is {level}, and TensorRT has 0 to 5"


def test_a_provider_of_another_trt_et_does_not_open(monkeypatch):
    monkeypatch.setattr(provider_table, "trt_et_version", lambda: b"0.0.1")
    library = trt_et.runtime.plugin_path().with_name("libtrt_et_tensorrt_11.so")
    with pytest.raises(ValueError, match="NULL pointer"):
        provider_table.Provider(library)


def test_options_of_the_network_reach_the_builder(build):
    network = {
        "workspace_size": 4096,
        "optimization_level": 5,
        "weight_streaming": True,
        "profiles": [{"x": [[1, 8], [1, 8], [1, 8]]}, {}],
        "later": 1,
    }
    result = build(scaled(), network=network)
    assert "streamable 512\n" in result["engine"]
    assert "profile\nrange x 1,8 1,8 1,8\nprofile\nrange x 1,8 2,8 4,8\n" in result["engine"]
    lines = "\n".join(result["lines"])
    assert "workspace 4096, level 5" in lines
    assert "network: ignores later" in lines


def test_weight_streaming_needs_tensorrt_10_1(build):
    network = {"weight_streaming": True}
    result = build(scaled(), "10", {"TRT_ET_FAKE_VERSION": "10.0.1"}, network=network)
    assert result["error"] == "0x10: weight_streaming needs TensorRT 10.1 or later, not 10.0.1"


def test_progress_is_reported(build):
    steps = build(scaled(more="steps 3 0\n"), report=True)["steps"]
    assert steps == [["Building engine", step, 3] for step in range(4)]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            "refuse /conv_1 Conv no 5-d groups\n",
            "0x30: TensorRT 11.7.3 does not take node '/conv_1' (Conv): no 5-d groups",
        ),
        (
            "unbuildable no implementation for node\n",
            "0x30: TensorRT 11.7.3 builds no engine of the network: no implementation for node",
        ),
        (
            "unbuildable out of memory\n",
            "0x21: TensorRT 11.7.3 builds no engine of the network: out of memory",
        ),
    ],
)
def test_a_refusal_is_one_sentence_and_leaves_nothing(keep, folder, more, reason):
    assert keep(scaled(more=more))["error"] == reason
    assert not list(folder.iterdir())


def _with(**changes: Any) -> Payload:
    payload = scaled()
    for name, value in changes.items():
        setattr(payload, name, value)
    return payload


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (_with(model=scaled().model[:-9]), "is no ONNX model"),
        (_with(weights={}), "initializer 'W' is in 'trt_et_onnx_"),
        (_with(tensors=scaled().tensors[:1]), "network has 2 inputs and outputs, its blob names 1"),
        (_with(tensors=[("z", [1, 8], True), ("y", [1, 8], False)]), "network has no input 'z'"),
        (
            _with(tensors=[("x", [1, 8], True, "int32"), ("y", [1, 8], False)]),
            "network and blob disagree on the dtype of 'x'",
        ),
    ],
)
def test_a_damaged_payload_is_refused(keep, folder, payload, reason):
    result = keep(payload)
    assert result["error"].startswith("0x23: ")
    assert reason in result["error"]
    assert not list(folder.iterdir())


def test_a_library_without_parser_is_refused(build, fakes, tmp_path):
    library = tmp_path / "libfake_nvinfer.so"
    library.write_bytes((fakes / "libfake_nvinfer.so").read_bytes())
    result = build(scaled(), env={"TRT_ET_TENSORRT_LIBRARY": str(library)})
    assert "TensorRT 11.7.3 here has no ONNX parser" in result["error"]
    assert "install libnvonnxparser.so.11 beside" in result["error"]


def test_a_library_without_builder_is_refused(build, tmp_path):
    source, library = tmp_path / "lean.c", tmp_path / "libnvinfer_lean.so"
    source.write_text(
        "int getInferLibVersion(void) { return 110100; }\n"
        "void* createInferRuntime_INTERNAL(void* logger, int version) { return 0; }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    result = build(scaled(), env={"TRT_ET_TENSORRT_LIBRARY": str(library)})
    assert "TensorRT 11.1.0 here only runs engines: it has no builder" in result["error"]


def _engine_lines(result: dict[str, Any]) -> list[str]:
    """What the user sees."""
    return [line[2:] for line in result["lines"] if line.startswith("4 ")]


def _built(result: dict[str, Any]) -> bool:
    return any(line.startswith("built an engine") for line in _engine_lines(result))


class TestEngineFolder:
    """Built engines are kept, and found by everything that they depend on."""

    def test_an_engine_is_built_once(self, keep, folder):
        first, second = (keep(scaled()) for _ in range(2))
        assert _built(first)
        start, end = _engine_lines(first)
        assert start.startswith("TensorRT 11.7.3 builds an engine of a network of 0.0 MB for no")
        assert end.endswith(f"kept in {folder}")
        assert _engine_lines(second) == []
        assert second["engine"] == first["engine"]
        (file,) = folder.iterdir()
        assert file.suffix == ".engine"

    @pytest.mark.parametrize(
        "change",
        [
            {"payload": scaled(4.0)},
            {"payload": _with(tensors=[("x", [[1, 3, 4], 8], True), ("y", [[1, 3, 4], 8], False)])},
            {"network": {"optimization_level": 1}},
            {"env": {"TRT_ET_FAKE_VERSION": "11.2.0"}},
        ],
    )
    def test_another_network_option_or_tensorrt_is_built_anew(self, keep, change):
        assert _built(keep(scaled()))
        assert _built(keep(**{"payload": scaled(), **change}))
        assert not _built(keep(scaled()))

    def test_build_0_takes_stored_engines_only(self, keep, folder):
        refused = keep(scaled(), build=False)
        assert refused["error"].startswith(f"0x20: build=0, and {folder} has no engine")
        assert not folder.exists()
        keep(scaled())
        assert "engine" in keep(scaled(), build=False)

    @pytest.mark.parametrize("at", [0, 9, 20, 70, -1, None])
    def test_a_damaged_or_cut_engine_is_built_again(self, keep, folder, at):
        whole = keep(scaled())
        (file,) = folder.iterdir()
        data = bytearray(file.read_bytes())
        if at is None:
            del data[40:]
        else:
            data[at] ^= 1
        file.write_bytes(data)
        again = keep(scaled())
        assert _built(again)
        assert any("is damaged, and will be built again" in line for line in _engine_lines(again))
        assert again["engine"] == whole["engine"]
        assert not _built(keep(scaled()))

    def test_a_killed_build_leaves_what_the_next_one_removes(self, start, keep, folder, tmp_path):
        """Also what was built for another network, and by a parser that reads files."""
        slow = scaled(more="steps 1 60000\n").write(tmp_path / "slow", engine_folder=str(folder))
        process = start(slow, "10", {"TRT_ET_FAKE_VERSION": "10.3.0"})
        try:
            _wait_for(lambda: list(folder.glob("*.part-*/trt_et_onnx_*")))
            assert _built(keep(scaled(9.0), "rtx"))  # It waits for no other build.
            assert list(folder.glob("*.part-*"))  # Its builder lives.
        finally:
            process.kill()
            process.wait(60)
        kinds = {path.name.split(".")[1][:4] for path in folder.iterdir()}
        assert kinds == {"part", "lock", "engi"}
        assert (folder / "gpu-no_GPU.lock").exists()
        keep(scaled(2.0))
        assert {path.suffix for path in folder.iterdir()} == {".engine"}

    def test_two_processes_build_once(self, start, folder, tmp_path):
        payload = scaled(more="steps 1 2000\n")
        processes = [
            start(payload.write(tmp_path / str(index), engine_folder=str(folder)))
            for index in range(3)
        ]
        results = [result_of(process) for process in processes]
        assert sum(map(_built, results)) == 1
        assert len({result["engine"] for result in results}) == 1
        waits = "waits for another process that builds the same engine"
        assert sum(waits in _engine_lines(result) for result in results) == 2
        assert [path.suffix for path in folder.iterdir()] == [".engine"]

    def test_the_engine_that_was_not_used_for_the_longest_time_goes_first(self, keep, folder):
        for factor in (1.0, 2.0, 3.0):
            keep(scaled(factor))
        files = sorted(folder.iterdir())
        for file in files:
            os.utime(file, (1, 1))
        assert not _built(keep(scaled(2.0)))  # Used just now.
        with files[0].open("r+b") as unused:
            unused.truncate(12 << 30)  # It takes no room on the disk.
        with (folder / "another.engine").open("wb") as older:
            older.truncate(12 << 30)
        os.utime(older.name, (0, 0))
        assert _built(keep(scaled(4.0)))
        assert "another.engine" not in {file.name for file in folder.iterdir()}
        assert len(list(folder.iterdir())) == 4
        assert not _built(keep(scaled(2.0)))
        assert not _built(keep(scaled(4.0)))

    @pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
    def test_who_may_read_a_named_folder_is_its_users_choice(self, keep, folder, umask, mode):
        keep(scaled(), command=["sh", "-c", f'umask {umask:o}; exec "$@"', "-"])
        (file,) = folder.iterdir()
        assert file.stat().st_mode & 0o777 == mode
        assert folder.stat().st_mode & 0o777 == 0o777 & ~umask

    @_as_root
    def test_another_user_takes_an_engine_from_the_folder_of_an_image(self, keep, shared):
        keep(scaled())
        for build in (False, True):
            result = keep(scaled(), command=_NOBODY, build=build)
            assert "engine" in result, result
            assert not _built(result)

    @_as_root
    def test_an_engine_that_cannot_be_read_is_not_denied(self, keep, shared):
        keep(scaled())
        (file,) = shared.iterdir()
        file.chmod(0o600)
        refused = keep(scaled(), command=_NOBODY, build=False)
        reason = "0x20: build=0, and the engine cannot be read: Permission denied: "
        assert refused["error"].startswith(reason + str(shared))
        lines = _engine_lines(keep(scaled(), command=_NOBODY))
        assert (
            f"a built engine cannot be read: Permission denied, and will be built again: {file}"
            in lines
        )
        assert any(f"not kept: Permission denied: {shared}" in line for line in lines)

    @_as_root
    def test_two_users_share_a_folder_that_all_may_write_to(self, keep, shared):
        shared.chmod(0o1777)
        assert _built(keep(scaled(), command=_NOBODY))
        assert not _built(keep(scaled()))
        assert _built(keep(scaled(4.0)))
        assert not _built(keep(scaled(4.0), command=_NOBODY))

    def test_a_folder_in_the_place_of_an_engine_is_told(self, keep, folder):
        keep(scaled())
        (file,) = folder.iterdir()
        file.unlink()
        file.mkdir()
        result = keep(scaled())
        assert _built(result)
        assert any("cannot be read: Is a directory" in line for line in _engine_lines(result))
        refused = keep(scaled(), build=False)["error"]
        assert refused.startswith("0x20: build=0, and the engine cannot be read: Is a directory: ")

    @pytest.mark.parametrize(
        ("command", "env", "reason"),
        [
            (["env", "-u", "HOME", "-u", "XDG_CACHE_HOME"], {}, "HOME is not set"),
            (["env", "-u", "XDG_CACHE_HOME"], {"HOME": "home"}, "HOME is no absolute path"),
            pytest.param(
                (),
                {"XDG_CACHE_HOME": "nobody"},
                "XDG_CACHE_HOME is another user's folder",
                marks=_as_root,
            ),
        ],
    )
    def test_without_a_folder_the_reason_is_told(self, build, tmp_path, command, env, reason):
        if "XDG_CACHE_HOME" in env:
            env = {"XDG_CACHE_HOME": str(tmp_path)}
            os.chown(tmp_path, 65534, 65534)
        reason = f"there is no folder for engines ({reason})"
        result = build(scaled(), env=env, command=command, engine_folder="")
        assert f"built engines are not kept: {reason}" in _engine_lines(result)
        refused = build(scaled(), env=env, command=command, engine_folder="", build=False)
        assert refused["error"].startswith(f"0x20: build=0, and {reason} for TensorRT 11")

    def test_a_plugin_library_that_has_changed_is_another_engine(self, keep, tmp_path):
        plugins = []
        for name in ("first", "second"):
            (tmp_path / "plugin.c").write_text("int some_symbol;\n")
            path = tmp_path / name / "libplugins.so"
            path.parent.mkdir()
            command = ["cc", "-shared", "-o", str(path), str(tmp_path / "plugin.c")]
            subprocess.run(command, check=True, timeout=60)
            plugins.append(path)
        assert _built(keep(scaled(), plugins=str(plugins[0])))
        assert not _built(keep(scaled(), plugins=str(plugins[1])))  # A copy elsewhere.
        with plugins[1].open("ab") as library:
            library.write(b"newer")
        assert _built(keep(scaled(), plugins=str(plugins[1])))
        assert _built(keep(scaled(), plugins=f"{plugins[0]}:{plugins[1]}"))
        assert _built(keep(scaled()))
        assert not _built(keep(scaled(), plugins=str(plugins[0])))

    @pytest.mark.parametrize("problem", ["ENOSYS", "EOPNOTSUPP", "ENOLCK"])
    def test_a_file_system_without_locks_keeps_engines(self, keep, folder, flock, problem):
        env = {"LD_PRELOAD": str(flock), "FLOCK_FAILS": str(getattr(errno, problem))}
        result = keep(scaled(), env=env)
        assert _engine_lines(result)[-1].endswith(f"kept in {folder}")
        assert [file.suffix for file in folder.iterdir()] == [".engine"]
        assert not _built(keep(scaled(), env=env))

    def test_a_wait_costs_little_and_ends_when_the_caller_says_so(
        self, keep, folder, flock, tmp_path
    ):
        keep(scaled())
        (file,) = folder.iterdir()
        file.unlink()
        env = {"LD_PRELOAD": str(flock), "FLOCK_CALLS": str(tmp_path / "calls")}
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            start = time.monotonic()
            result = keep(scaled(), env=env, report=True, end_at=40)
            waited = time.monotonic() - start
        assert result["error"] == (
            "0x2: the wait for another build was ended by the caller's progress function"
        )
        assert result["steps"] == [["waits for another build", 0, 0]] * 40
        assert waited > 2
        # Twice 20 ms, 40 ms, and so on, and then one every two seconds.
        assert (tmp_path / "calls").stat().st_size <= 12 + waited / 2
        assert [path.suffix for path in folder.iterdir()] == [".lock"]

    @pytest.mark.parametrize("kept", [True, False])
    def test_one_engine_at_a_time_is_built_on_a_gpu(self, start, folder, tmp_path, kept):
        """Two processes, or two threads of one where no folder is shared."""
        payloads = [
            scaled(float(index + 1), more="steps 5 100\n").write(
                tmp_path / str(index),
                engine_folder=str(folder) if kept else "off",
                report=True,
                trace=str(tmp_path / "trace"),
            )
            for index in range(2)
        ]
        results = [result_of(process) for process in [start(each) for each in payloads]]
        assert all(map(_built, results))
        trace = (tmp_path / "trace").read_text().splitlines()
        builds = [line for line in trace if line.startswith("Building")]
        assert len(builds) == 12
        if kept:
            assert len(set(builds[:6])) == len(set(builds[6:])) == 1

    def test_a_full_disk_costs_the_file_and_not_the_engine(self, keep, folder):
        result = keep(scaled(), largest_file=100)
        assert "scale y x 3.0" in result["engine"]
        (line,) = [line for line in _engine_lines(result) if "is not kept" in line]
        assert f"bytes is not kept: File too large: {folder}" in line
        assert not list(folder.iterdir())

    def test_a_full_disk_ends_a_build_that_needs_files(self, keep, folder):
        env = {"TRT_ET_FAKE_VERSION": "10.3.0"}
        result = keep(scaled(), "10", env, largest_file=100)
        assert result["error"].startswith("0x22: no room for a weight of 1024 bytes in ")
        assert not list(folder.iterdir())

    def test_a_folder_that_cannot_be_written_costs_the_file_and_not_the_engine(
        self, build, tmp_path
    ):
        (tmp_path / "file").write_text("no folder")
        result = build(scaled(), engine_folder=str(tmp_path / "file" / "engines"))
        assert "scale y x 3.0" in result["engine"]
        (line,) = [line for line in _engine_lines(result) if "are not kept" in line]
        assert "are not kept: Not a directory: " in line

    def test_the_default_folder_is_the_users_alone(self, build, tmp_path):
        env = {"XDG_CACHE_HOME": str(tmp_path)}
        assert _built(build(scaled(), env=env, engine_folder=""))
        folder = tmp_path / "trt-et" / "engines"
        assert len(list(folder.iterdir())) == 1
        folder.chmod(0o777)
        result = build(scaled(), env=env, engine_folder="")
        assert _built(result)
        assert any("other users may write to" in line for line in _engine_lines(result))


def _wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def build_engine(build, tmp_path):
    """Build with a TensorRT-RTX whose networks have no layers, and whose engine is this one."""

    def run(engine, **env):
        (tmp_path / "engine").write_bytes(engine)
        return build(scaled(3.0), "rtx", {"TRT_ET_FAKE_ENGINE": str(tmp_path / "engine"), **env})

    return run


@pytest.mark.parametrize("name", sampled(LOST_BIASES, 4))
def test_products_that_may_lose_a_bias_are_those_that_python_finds(build_engine, name):
    engine, expected = LOST_BIASES[name]
    result = build_engine(engine)
    unread = [line for line in result["lines"] if "cannot be read: whether one loses" in line]
    assert len(unread) == (expected is None)
    if expected:
        assert f"may lose a bias of node '{expected[0]}'" in result["error"]
        assert "TRT_ET_ANY_KERNEL=1" in result["error"]
    else:
        assert result["engine"].encode("latin-1") == engine


def test_the_caller_may_allow_a_kernel_that_may_lose_a_bias(build_engine):
    engine = LOST_BIASES["in a fusion"][0]
    result = build_engine(engine, TRT_ET_ANY_KERNEL="1")
    assert result["engine"].encode("latin-1") == engine
    assert any("may lose a bias of node 'y.1'" in line for line in result["lines"])
