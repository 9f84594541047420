"""What TensorRT-RTX compiles at run time is kept for the next process: on its fake."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from tests.support.fake_tensorrt import FakeBuilder, Line
from tests.support.native_environment import environment
from tests.support.native_programs import export

LARGEST = 40  # More sizes than a method has contexts.


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    builder = FakeBuilder(version="1.7.1")
    builder.name = "tensorrt_rtx"
    batch = ({0: torch.export.Dim("batch", min=1, max=LARGEST)},)
    folder = tmp_path_factory.mktemp("program")
    return export(folder, "line", Line(), (torch.ones(LARGEST, 8),), builder=builder, dynamic=batch)


@pytest.fixture
def variables(fakes, tmp_path):
    return {
        "TRT_ET_TENSORRT_LIBRARY": str(fakes / "libfake_tensorrt_rtx.so"),
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": "",
    }


@pytest.fixture
def run(program, runner, variables):
    """Runs the program twice in a new process; its stderr."""

    def run(*flags, **more):
        done = runner(
            *("--model_path", program.path, "--num_executions=2", *flags),
            cuda="simulated:1",
            TRT_ET_LOG="debug",
            **{**variables, **more},
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_kernels_are_compiled_once_and_found_by_the_next_process(run, tmp_path):
    assert run().count("compiles kernels") == 1
    (kept,) = files(tmp_path / "home" / ".cache" / "trt-et" / "kernels")
    assert kept.name.endswith(".kernels")
    before = kept.stat().st_mtime_ns
    assert "compiles kernels" not in run()
    assert kept.stat().st_mtime_ns == before


@pytest.mark.parametrize("by", ["TRT_ET_RUNTIME_CACHE", "XDG_CACHE_HOME", "--runtime_cache"])
def test_the_folder_can_be_named(run, tmp_path, by):
    folder = tmp_path / "named"
    flags = [f"{by}={folder}"] if by.startswith("--") else []
    run(*flags, **({} if flags else {by: str(folder)}))
    assert len(files(folder)) == 1
    assert not files(tmp_path / "home")


def test_it_can_be_switched_off(run, tmp_path):
    assert "compiles kernels" not in run(TRT_ET_RUNTIME_CACHE="off")
    assert not files(tmp_path)


@pytest.mark.reliability("R5")
def test_a_corrupt_file_is_reported_and_replaced(run, tmp_path):
    run(TRT_ET_RUNTIME_CACHE=str(tmp_path / "cache"))
    (kept,) = files(tmp_path / "cache")
    good = kept.read_bytes()
    kept.write_bytes(b"\0" + good)
    found = run(TRT_ET_RUNTIME_CACHE=str(tmp_path / "cache"))
    assert "kernel cache is not usable and will be written anew" in found
    assert "compiles kernels" in found
    assert kept.read_bytes() == good


@pytest.mark.reliability("R5")
def test_a_folder_that_cannot_be_written_is_reported(run, tmp_path):
    (tmp_path / "file").write_text("")
    found = run(TRT_ET_RUNTIME_CACHE=str(tmp_path / "file" / "cache"))
    reason = "kernel cache cannot be written: Not a directory"
    assert f"TensorRTBackend: {reason}: {tmp_path}/file/cache/" in found


@contextlib.contextmanager
def locked(kept: Path):
    """Keep the file's lock, as a process would that hangs; for a minute at most."""
    descriptor = os.open(kept.with_name(f"{kept.name}.lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    released = threading.Timer(60, fcntl.flock, (descriptor, fcntl.LOCK_UN))
    released.start()
    try:
        yield
    finally:
        released.cancel()
        os.close(descriptor)


@pytest.mark.long
def test_a_lock_that_is_not_free_holds_no_process_up(run, server, tmp_path):
    """Neither the end of a process nor a save; the file is written without the lock."""
    server(1)  # It has started, and has not read what comes now.
    run()
    (kept,) = files(tmp_path / "home")
    with locked(kept):
        start = time.monotonic()
        server(2)
        server("save")
        assert sizes(tmp_path) == {1, 2}
        run()
        assert time.monotonic() - start < 30
    assert sizes(tmp_path) == {1, 2, LARGEST}


@pytest.mark.parametrize("what", ["folder", "pipe", "link"])
def test_the_file_is_written_where_there_can_be_no_lock(run, tmp_path, what):
    folder = tmp_path / "cache"
    run(TRT_ET_RUNTIME_CACHE=str(folder))
    (kept,) = files(folder)
    kept.unlink()
    lock = kept.with_name(f"{kept.name}.lock")
    if what == "folder":
        lock.mkdir()
    elif what == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(tmp_path / "elsewhere")
    run(TRT_ET_RUNTIME_CACHE=str(folder))
    assert files(folder) == [kept]
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_in_place_of_the_file_is_reported(run, tmp_path):
    """The last step of a write fails, and leaves no part."""
    folder = tmp_path / "cache"
    run(TRT_ET_RUNTIME_CACHE=str(folder))
    (kept,) = files(folder)
    kept.unlink()
    kept.mkdir()
    found = run(TRT_ET_RUNTIME_CACHE=str(folder))
    assert f"kernel cache cannot be written: Is a directory: {kept}" in found
    assert list(folder.iterdir()) == [kept]


def test_a_limit_for_the_size_of_files_is_reported(program, variables):
    """And no signal ends the process."""
    import trt_et.runtime

    flags = ["--model_path", str(program.path), "--print_output=none"]
    command = shlex.join([str(trt_et.runtime.runner_path()), *flags])
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 0; exec {command}"],
        env=environment(TRT_ET_CUDA="simulated:1", **variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "TensorRTBackend: kernel cache cannot be written: File too large: " in done.stderr


def test_a_pipe_in_place_of_the_file_is_not_waited_for(run, tmp_path):
    folder = tmp_path / "cache"
    run(TRT_ET_RUNTIME_CACHE=str(folder))
    (kept,) = files(folder)
    good = kept.read_bytes()
    kept.unlink()
    os.mkfifo(kept)
    found = run(TRT_ET_RUNTIME_CACHE=str(folder))
    assert "kernel cache cannot be read" in found
    assert kept.read_bytes() == good


def test_parts_of_files_that_killed_processes_left_are_removed(run, tmp_path):
    folder = tmp_path / "cache"
    run(TRT_ET_RUNTIME_CACHE=str(folder))
    (kept,) = files(folder)
    names = ("abandon", "ABCDEF", "FEDCBA")
    other, old, young = (kept.with_name(f"{kept.name}.{name}") for name in names)
    for path in (other, old, young):
        path.write_bytes(b"part")
    for path in (other, old):
        os.utime(path, (1, 1))
    kept.unlink()
    run(TRT_ET_RUNTIME_CACHE=str(folder))
    assert set(files(folder)) == {kept, other, young}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_root_makes_nothing_in_the_home_of_another_user(run, tmp_path, variable):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 1000, 1000)
    run(**{variable: str(theirs)})
    assert not list(theirs.iterdir())


def test_without_graphs_the_library_records_none(run):
    """The fake names its kernels after the strategy that it was given."""
    assert "compiles kernels: graph" in run()
    assert "compiles kernels: plain" in run("--cuda_graphs=off")


SERVER = """
import ctypes, sys, torch, trt_et.runtime
trt_et.runtime.load()
from executorch.runtime import Runtime
method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
library = ctypes.CDLL(str(trt_et.runtime.plugin_path()))
for line in sys.stdin:
    if line == "save\\n":
        assert library.trt_et_save_kernels() == 0
    else:
        method.execute([torch.ones(int(line), 8)])
    print("done", flush=True)
"""


FORKS = """
import os, signal, sys, threading, torch, ctypes, trt_et.runtime
trt_et.runtime.load()
from executorch.runtime import Runtime
method = Runtime.get().load_program(sys.argv[1]).load_method("forward")
library = ctypes.CDLL(str(trt_et.runtime.plugin_path()))
done = False
def save():
    while not done:
        library.trt_et_save_kernels()
thread = threading.Thread(target=save)
thread.start()
children = []
for size in range(1, 9):
    method.execute([torch.ones(size, 8)])
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        if size % 2:
            del method
        ctypes.CDLL(None).exit(0)  # With what C and C++ do at the end; Python's takes long.
    children.append(child)
statuses = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
done = True
thread.join()
print(statuses)
"""


@pytest.mark.long
def test_a_process_forked_while_kernels_are_saved_ends(program, run, variables, tmp_path):
    """With the file's lock taken, a save takes a while."""
    run()
    with locked(*files(tmp_path / "home")):
        done = subprocess.run(
            [sys.executable, "-c", FORKS, str(program.path)],
            env=environment(TRT_ET_CUDA="simulated:1", **variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.stdout == "{0}\n", done.stderr


@pytest.fixture
def server(program, variables):
    """A process that runs the program for each size that it is told, until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(program.path)],
        env=environment(TRT_ET_CUDA="simulated:1", **variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def tell(line):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"

    tell.process = process
    yield tell
    process.kill()
    process.communicate()


def sizes(folder: Path) -> set[int]:
    """Of the input, for which the file of kernels has some."""
    (kept,) = folder.rglob("*.kernels")
    return {int(kernel.split()[1]) // 8 for kernel in kept.read_text().splitlines()[1:]}


@pytest.mark.long
def test_sizes_that_come_after_a_frequent_one_keep_the_librarys_graphs(server, tmp_path):
    """The third equal call asks for a CUDA graph, which TensorRT-RTX refuses for such an engine."""
    for size in (3, 3, 3, 3, 2, 1):
        server(size)
    server("save")
    (kept,) = files(tmp_path / "home")
    kernels = kept.read_text().splitlines()[1:]
    assert len(kernels) >= 3
    assert all(kernel.startswith("graph") for kernel in kernels), kernels


@pytest.mark.long
def test_a_server_keeps_its_kernels_before_it_ends(server, run, tmp_path):
    """By a call of C, and now and then by itself; and what another process has kept stays."""
    home = tmp_path / "home"
    server(2)
    run()
    assert LARGEST in sizes(home)
    server("save")
    assert sizes(home) == {2, LARGEST}
    until = time.monotonic() + 60
    while not {1, 2, LARGEST} < sizes(home):
        assert time.monotonic() < until
        for size in range(1, LARGEST):  # They change all the time.
            server(size)
    server.process.kill()
    assert {1, 2, LARGEST} < sizes(home)
