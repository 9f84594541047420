"""Builds that end their process: an error of their partition, and the export goes on living."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import psutil
import pytest

from tests.support.executors import export
from tests.support.programs.crashing_builders import CrashingOn, KilledOnce
from trt_et import OptionError, PartitionError
from trt_et.errors import BuildCrashed
from trt_et.scheduler.isolated_process import IsolatedProcess, ProcessEnded


def stored(folder) -> int:
    return len(list((folder / "v1" / "engines").glob("*/*")))


def test_a_build_that_aborts_is_an_error_and_stores_nothing_wrong(tmp_path):
    with pytest.raises(
        BuildCrashed,
        match=r"'reference' ended its process \(SIGABRT\) on partition tensorrt_2 \(2 nodes: "
        r"aten::linear\.default, aten::tanh\.default\)\. .*on_crash='split'.*excluded_ops",
    ):
        export(on_crash="error", builder=CrashingOn("aten.tanh.default"), cache=tmp_path)
    assert stored(tmp_path) == 2
    assert export(on_crash="error", builder=CrashingOn("nothing"), cache=tmp_path) == export()
    assert stored(tmp_path) == 3


def test_what_a_broken_pool_did_not_build_is_built_elsewhere(tmp_path, caplog):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["trt_et.scheduler.worker", "tests.support.programs.crashing_builders"]
    )
    with (
        ProcessPoolExecutor(2, mp_context=context) as pool,
        caplog.at_level(logging.WARNING, "trt_et"),
    ):
        assert export(executor=pool, builder=KilledOnce(tmp_path / "marker")) == export()
    assert "died while it built tensorrt_" in caplog.text
    assert "one partition after the other" in caplog.text


def test_a_builder_that_cannot_be_sent_is_told_apart_from_a_crash(monkeypatch):
    class Local(CrashingOn):
        pass

    with pytest.raises(PartitionError, match="cannot be sent to another process") as caught:
        export(on_crash="error", builder=Local())
    assert not isinstance(caught.value, BuildCrashed)
    # As a class of a script is.
    Local.__module__, Local.__qualname__ = "__main__", "Local"
    monkeypatch.setattr(sys.modules["__main__"], "Local", Local, raising=False)
    with pytest.raises(PartitionError, match="define it in a module that can be imported"):
        export(on_crash="error", builder=Local())


def test_a_builder_that_raises_is_no_crash():
    with pytest.raises(PartitionError, match="another process") as caught:
        export(on_crash="error", builder=CrashingOn(), executor=Refuses())
    assert not isinstance(caught.value, BuildCrashed)


class Refuses(IsolatedProcess):
    """Its process has no converters of the caller's."""

    def submit(self, function, /, *args, **kwargs):
        raise AssertionError("another process")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_crash": "ignore"}, "on_crash is 'ignore'; expected None, 'error' or 'split'"),
        ({"on_crash": True}, "on_crash is True"),
        ({"on_crash": "error", "executor": ThreadPoolExecutor(1)}, "Leave executor out"),
    ],
)
def test_impossible_values_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        export(**options)


def test_one_process_serves_all_calls_until_it_ends():
    process = IsolatedProcess()
    first = process.submit(os.getpid).result()
    assert process.submit(os.getpid).result() == first != os.getpid()
    with pytest.raises(ProcessEnded, match=r"^exit status 3$"):
        process.submit(os._exit, 3).result()
    second = process.submit(os.getpid).result()
    os.kill(second, signal.SIGKILL)  # Between two calls, which no call is to blame for.
    psutil.wait_procs([psutil.Process(second)], timeout=60)
    third = process.submit(os.getpid).result()
    assert len({first, second, third}) == 3
    del process
    gc.collect()
    assert not psutil.pid_exists(third)


def test_control_c_ends_the_process_that_builds():
    process = IsolatedProcess()
    child = process.submit(os.getpid).result()
    # A shell has its background processes ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            process.submit(time.sleep, 600)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not psutil.pid_exists(child)


def test_a_process_that_cannot_start_says_so(monkeypatch):
    monkeypatch.setattr("trt_et.scheduler.isolated_process._COMMAND", "raise SystemExit(7)")
    with pytest.raises(PartitionError, match="could not be started: it ended with exit status 7"):
        export(on_crash="error")


def test_a_process_that_ended_while_it_was_idle_is_no_crash_of_the_next_call():
    process = IsolatedProcess()
    first = process.submit(os.getpid).result()
    os.kill(first, signal.SIGKILL)
    assert process.submit(os.getpid).result() != first


def test_no_file_of_the_current_folder_is_imported(tmp_path, monkeypatch):
    (tmp_path / "pickle.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    assert IsolatedProcess().submit(os.getpid).result() != os.getpid()


def test_a_folder_that_was_removed_stops_no_build(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.syspath_prepend("")
    gone.rmdir()
    assert IsolatedProcess().submit(os.getpid).result() != os.getpid()
