"""Builds in threads and in other processes: the same file, whatever happens to them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support.executors import Dying, Inline, Named, Slow, Unavailable, export
from trt_et import OptionError, PartitionError, TensorRTPartitioner
from trt_et.errors import BuildCrashed, BuilderError, BuilderUnavailable


@pytest.fixture(scope="module")
def context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trt_et.scheduler.worker", "tests.support.executors"])
    return context


def leftovers(scratch: Path) -> list[str]:
    return sorted(str(path) for path in scratch.rglob("*"))


def test_processes_give_the_bytes_of_a_serial_export(context, tmp_path):
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert export(executor=pool, scratch=tmp_path) == export()
        assert leftovers(tmp_path) == []
        engines = export(executor=pool, scratch=tmp_path, builder="tensorrt_rtx")
    assert engines == export(builder="tensorrt_rtx")


@pytest.mark.parametrize("builder", ["reference", "tensorrt_rtx"])
def test_threads_give_the_bytes_of_a_serial_export(builder):
    serial = export(builder=builder)
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            assert export(executor=pool, builder=builder) == serial


def test_a_worker_that_dies_is_told_with_its_partition(context, tmp_path):
    with (
        ProcessPoolExecutor(2, mp_context=context) as pool,
        pytest.raises(BuildCrashed, match=r"\(SIGKILL, .* memory .*\) on partition tensorrt_1 "),
    ):
        export(executor=pool, scratch=tmp_path, builder=Dying("tensorrt_1"))
    assert leftovers(tmp_path) == []


def test_a_pool_whose_processes_do_not_start_names_the_guard_that_scripts_need(context, tmp_path):
    with (
        ProcessPoolExecutor(1, context, os._exit, (1,)) as pool,
        pytest.raises(PartitionError, match=r'under `if __name__ == "__main__":`'),
    ):
        export(executor=pool, scratch=tmp_path)


SCRIPT = """
import multiprocessing, signal, sys
from concurrent.futures import ProcessPoolExecutor
from tests.support.executors import Slow, export
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trt_et.scheduler.worker", "tests.support.executors"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        export(executor=pool, scratch=sys.argv[1], builder=Slow("tensorrt_1"))
"""


def test_control_c_stops_the_builds_and_leaves_nothing(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    child = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(scratch)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        while not list(scratch.rglob("engine1.*.part")):
            assert child.poll() is None, child.communicate()[1]
            time.sleep(0.05)
        family = psutil.Process(child.pid).children(recursive=True)
        assert len(family) >= 2
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=600)[1]
    finally:
        child.kill()
    assert child.returncode != 0
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert leftovers(scratch) == []
    assert psutil.wait_procs(family, timeout=600)[1] == []


@pytest.mark.parametrize("kind", [Inline, lambda: ThreadPoolExecutor(1)])
def test_a_failure_names_the_partition_and_nothing_more_is_built(kind, tmp_path):
    with (
        kind() as pool,
        pytest.raises(
            PartitionError,
            match=r"'named' failed on partition tensorrt_1 .*linear.*: .*out of luck",
        ) as caught,
    ):
        export(executor=pool, scratch=tmp_path, builder=Named("tensorrt_1"))
    assert caught.value.__cause__ is not None
    assert leftovers(tmp_path) == []


def test_the_workers_traceback_is_shown(tmp_path):
    with pytest.raises(PartitionError) as caught:
        export(executor=Inline(), scratch=tmp_path, builder=Named("tensorrt_0"))
    remote = caught.value.__cause__.__cause__
    assert "in the process that built it" in str(remote)
    assert "be_odd" in str(remote)


def test_our_own_errors_keep_their_class():
    with pytest.raises(BuilderUnavailable, match="no GPU here"):
        export(executor=Inline(), builder=Unavailable("tensorrt_0"))


def test_a_failure_cancels_what_has_not_begun():
    class Held(Executor):
        """Fails the first; the others wait until they are cancelled."""

        def __init__(self):
            self.futures = []

        def submit(self, function, /, *args, **kwargs):
            self.futures.append(Future())
            if len(self.futures) == 3:
                self.futures[0].set_exception(BuilderError("broken"))
            return self.futures[-1]

    executor = Held()
    with pytest.raises(PartitionError, match=r"tensorrt_0 .*broken"):
        export(executor=executor)
    assert [future.cancelled() for future in executor.futures] == [False, True, True]


def test_slow_thread_builds_are_told_to_stop():
    class Watched(Slow):
        def build(self, request):
            if request.partition == "tensorrt_2":
                raise ValueError("out of luck")
            self.be_odd(request)
            stopped.append(request.partition)

    stopped: list[str] = []
    with ThreadPoolExecutor(3) as pool, pytest.raises(PartitionError, match="out of luck"):
        export(executor=pool, builder=Watched(""))
    assert sorted(stopped) == ["tensorrt_0", "tensorrt_1"]


def _damage(request):
    path = Path(request.engine)
    path.write_bytes(path.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (_damage, "arrived damaged"),
        (lambda request: Path(request.engine).unlink(), r"share \(scratch=\.\.\.\)"),
    ],
)
def test_an_engine_that_does_not_arrive_is_not_used(after, message, tmp_path):
    with pytest.raises(PartitionError, match=message):
        export(executor=Inline(after), scratch=tmp_path)
    assert leftovers(tmp_path) == []


def test_the_cache_comes_first(tmp_path):
    cold, warm = Inline(), Inline()
    first = export(executor=cold, cache=tmp_path)
    assert export(executor=warm, cache=tmp_path) == first == export()
    assert (len(cold.requests), len(warm.requests)) == (3, 0)


def test_impossible_executors_are_refused(tmp_path):
    with pytest.raises(OptionError, match=r"executor is str; expected a concurrent\.futures"):
        TensorRTPartitioner(builder="reference", executor="dask")
    fork = multiprocessing.get_context("fork")
    with (
        ProcessPoolExecutor(1, mp_context=fork) as pool,
        pytest.raises(OptionError, match=r"forks of this one.*get_context\('spawn'\)"),
    ):
        TensorRTPartitioner(builder="reference", executor=pool)
    with pytest.raises(OptionError, match=r"no scratch folder can be made in .*nowhere"):
        export(executor=Inline(), scratch=tmp_path / "nowhere")
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(PartitionError, match="cannot schedule new futures after shutdown"):
        export(executor=closed)
