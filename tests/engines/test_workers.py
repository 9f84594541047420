"""Builds in threads and in other processes: the same file, whatever happens to them."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import multiprocessing.util
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import psutil
import pytest
import torch
from tblib import pickling_support
from torch import nn
from torch.export import Dim

from tests.support.executors import (
    Dying,
    Inline,
    KilledOnce,
    Named,
    Recording,
    Slow,
    Unavailable,
    export,
    sent,
)
from tests.support.programs.kv_cache_models import Cache, recorded
from tests.support.programs.kv_cache_updates import ONE, copy_rows, rows
from tests.support.sampled import sampled
from trt_et import OptionError, PartitionError, TensorRTPartitioner
from trt_et.engines import BuildOptions, BuildRequest, make_builder
from trt_et.errors import BuildCrashed, BuilderError, BuilderUnavailable

PRELOADED = ["tests.support.warmed_up", "tests.support.executors"]


@pytest.fixture(scope="module")
def context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    # A socket's path has 107 characters at most; below tmp_path, which is made here, it has more.
    multiprocessing.util.get_temp_dir()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def leftovers(scratch: Path) -> list[str]:
    return sorted(str(path) for path in scratch.glob("trt-et-*"))


@functools.cache
def serial(builder: str = "reference") -> bytes:
    return export(builder=builder)


def test_processes_give_the_bytes_of_a_serial_export(context, scratch):
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert export(executor=pool) == serial()
        assert leftovers(scratch) == []
        engines = export(executor=pool, builder="tensorrt_rtx")
    assert engines == serial("tensorrt_rtx")


@pytest.mark.parametrize("builder", sampled(["reference", "tensorrt_rtx"], 2))
def test_threads_give_the_bytes_of_a_serial_export(builder):
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            assert export(executor=pool, builder=builder) == serial(builder)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        pytest.param(signal.SIGABRT, r"\(SIGABRT\)", marks=pytest.mark.long),
        (signal.SIGKILL, r"\(SIGKILL, .* memory .*\)"),
    ],
)
def test_a_build_that_ends_its_process_names_its_partition(
    context, scratch, tmp_path, number, reason
):
    partition = r"partition tensorrt_2 \(2 nodes: aten::linear\.default, aten::tanh\.default\)"
    message = rf"'named' ended its process {reason} on {partition}\. excluded_ops="
    with (
        ProcessPoolExecutor(2, mp_context=context) as pool,
        pytest.raises(BuildCrashed, match=message),
    ):
        export(executor=pool, builder=Dying("tensorrt_2", number), cache=tmp_path / "cache")
    assert leftovers(scratch) == []
    # Whatever was stored before is whole.
    cached = export(builder=Dying("none"), cache=tmp_path / "cache")
    assert cached == serial()


@pytest.mark.long
def test_what_a_broken_pool_did_not_build_is_built_again(context, tmp_path, caplog):
    builder = KilledOnce("tensorrt_0", tmp_path / "marker")
    with (
        ProcessPoolExecutor(2, mp_context=context) as pool,
        caplog.at_level(logging.WARNING, "trt_et"),
    ):
        assert export(executor=pool, builder=builder) == serial()
    assert "a process of the executor died; partition tensorrt_" in caplog.text


UNGUARDED = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from tests.support.executors import export
pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
export(executor=pool)
"""


@pytest.mark.long
def test_a_script_without_a_guard_is_told_what_it_needs(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode != 0
    assert 'do its work under `if __name__ == "__main__":`' in done.stderr


SCRIPT = f"""
import multiprocessing, signal
from concurrent.futures import ProcessPoolExecutor
from tests.support.executors import Slow, export
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload({PRELOADED})
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        export(executor=pool, builder=Slow("tensorrt_1"))
"""


@pytest.mark.long
def test_control_c_stops_the_builds_and_leaves_nothing(tmp_path, scratch):
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(scratch)}
    child = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **paths, "TRT_ET_TEST_BEGUN": str(tmp_path / "begun")},
    )
    try:
        while not (tmp_path / "begun").exists():
            assert child.poll() is None, child.communicate()[1]
            time.sleep(0.05)
        family = psutil.Process(child.pid).children(recursive=True)
        assert len(family) >= 2
        assert leftovers(scratch) != []
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=600)[1]
    finally:
        child.kill()
    assert child.returncode != 0
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert leftovers(scratch) == []
    assert psutil.wait_procs(family, timeout=600)[1] == []


@pytest.mark.parametrize("kind", ["inline", "thread", "process"])
def test_a_failure_names_the_partition_and_nothing_more_is_built(kind, context, scratch):
    pools = {
        "inline": Inline,
        "thread": lambda: ThreadPoolExecutor(1),
        "process": lambda: ProcessPoolExecutor(1, mp_context=context),
    }
    with (
        pools[kind]() as pool,
        pytest.raises(
            PartitionError,
            match=r"'named' failed on partition tensorrt_1 .*linear.*: .*out of luck",
        ) as caught,
    ):
        export(executor=pool, builder=Named("tensorrt_1"))
    cause = caught.value.__cause__
    assert cause is not None
    if kind == "process":  # The worker's traceback.
        assert "be_odd" in str(cause.__cause__)
    assert leftovers(scratch) == []


class TwoArguments(Exception):
    """Cannot be unpickled: pickle calls it with its one text."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


class Raising(Named):
    def be_odd(self, request):
        raise TwoArguments("much", "bad luck")


def test_an_exception_that_no_pickle_takes_comes_back_as_text():
    pickling_support.install()  # Dask does; from then on, causes are pickled as well.
    request = request_for("dynamic")
    with pytest.raises(BuilderError, match="TwoArguments: much bad luck") as caught:
        sent(request, Raising(request.partition))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_our_own_errors_keep_their_class(context):
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


def test_impossible_executors_are_refused():
    with pytest.raises(OptionError, match=r"executor is str; expected a concurrent\.futures"):
        TensorRTPartitioner(builder="reference", executor="dask")
    fork = multiprocessing.get_context("fork")
    with (
        ProcessPoolExecutor(1, mp_context=fork) as pool,
        pytest.raises(OptionError, match=r"forks of this one.*get_context\('spawn'\)"),
    ):
        TensorRTPartitioner(builder="reference", executor=pool)
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(PartitionError, match="cannot schedule new futures after shutdown"):
        export(executor=closed)


def test_machines_that_share_no_folder_are_told_so():
    with pytest.raises(PartitionError, match=r"does not exist on .*set TMPDIR to it"):
        export(executor=Inline(lambda file: file.unlink()))


def test_other_versions_are_refused(monkeypatch):
    def upgrade(file):
        monkeypatch.setattr("trt_et.engines.workers.version", lambda name: "9.9")

    with pytest.raises(PartitionError, match=r"executorch is 9\.9 on .*install the same versions"):
        export(executor=Inline(upgrade))


class Constants(nn.Module):
    """Tied weights, views of one storage, several dtypes, a 0-d buffer, lifted tensors."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.tied = self.weight
        self.register_buffer("mask", torch.rand(8) > 0.5)
        self.register_buffer("index", torch.tensor([3, 1, 2]))
        self.register_buffer("scale", torch.tensor(2.5))
        self.register_buffer("bf16", torch.randn(8).bfloat16())
        self.register_buffer("int32", torch.arange(8, dtype=torch.int32))
        both = torch.randn(16)
        self.register_buffer("low", both[:8])
        self.register_buffer("middle", both[4:12])

    def forward(self, x):
        y = torch.where(self.mask, x @ self.weight @ self.tied, torch.tensor(7.0)) * self.scale
        y = y + self.bf16.float() + self.int32 + self.low * self.middle
        # Of topk one output is used, of split the second and then the first.
        first, second = y.split(4, -1)
        return y[:, self.index], y.topk(2).values, second - first


class Dynamic(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).relu() * x.shape[0]


CASES = {
    "constants": lambda: (Constants(), (torch.randn(4, 8),), None),
    "dynamic": lambda: (
        Dynamic(),
        (torch.randn(2, 8),),
        ({0: Dim("batch", min=1, max=8)},),
    ),
    "cache": lambda: (Cache(copy_rows), (ONE, rows()), None),
}


def request_for(case: str, **options) -> BuildRequest:
    """The request that the backend makes for a model of one partition."""
    torch.manual_seed(0)
    model, inputs, sizes = CASES[case]()
    (request,), _ = recorded(model, inputs, dynamic_shapes=sizes, **options)
    return request


@pytest.mark.parametrize("builder", ["reference", "tensorrt_rtx"])
@pytest.mark.parametrize("case", sampled(sorted(CASES), 2))
def test_the_engine_is_the_one_built_in_this_process(case, builder):
    request = request_for(case)
    here = make_builder(builder).build(request)
    assert sent(request, make_builder(builder)) == here
    assert (here[:4] == b"TR02") == ((case, builder) == ("cache", "tensorrt_rtx"))


def test_all_that_a_builder_is_given_travels(tmp_path):
    request = request_for("dynamic", optimization_profiles=[{"x": {0: 1}}, {"x": {0: (2, 3, 8)}}])
    assert request.program.profiles[1] == {"input0": ((2, 8), (3, 8), (8, 8))}
    options = BuildOptions(("8.9",), 3, {"disable_tf32": True})
    request = BuildRequest("part", request.program, 7, options, tmp_path / "timings")
    assert sent(request, Recording()) == b"engine"
    # The program is compared above; the monitor is the worker's own.
    for item in fields(BuildRequest):
        if item.name not in ("program", "monitor"):
            assert getattr(Recording.got, item.name) == getattr(request, item.name), item.name
    for item in fields(request.program):
        if item.name not in ("exported", "sources"):  # Sources are what builds are compared by.
            expected = getattr(request.program, item.name)
            assert getattr(Recording.got.program, item.name) == expected, item.name


def test_what_cannot_be_sent_is_an_error_of_its_partition(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.export, "save", full)
    with pytest.raises(PartitionError, match=r"tensorrt_0 .*No space .*executor=None.*TMPDIR"):
        export(executor=Inline())
