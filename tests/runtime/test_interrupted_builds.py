"""Ctrl-C and handlers of other signals end a build, and a wait for another build."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fake_tensorrt import FakeNetworkBuilder, Scale
from tests.support.native_environment import environment
from tests.support.native_programs import export

_STOCK = """
import trt_et.runtime
from executorch.runtime import Runtime
trt_et.runtime.load()
load = lambda: Runtime.get().load_program(sys.argv[1]).load_method("forward")
"""
_OURS = """
import trt_et.runtime
load = lambda: trt_et.runtime.load_program(sys.argv[1]).load_method("forward")
"""
_BUILD = """
from trt_et.cli import main as load
sys.argv[1:] = ["build", sys.argv[1], "-o", sys.argv[1] + ".built"]
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("slow")
    steps = {"long": "steps 3000 20\n", "aside": "steps 50 20 aside\n", "short": "steps 50 20\n"}
    return {
        name: export(
            folder, name, Scale(), (torch.ones(2, 512),), builder=FakeNetworkBuilder(more)
        ).path
        for name, more in steps.items()
    }


class Loading:
    """A Python that loads a program."""

    def __init__(self, program: Path, code: str, folder: Path, variables: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import signal, sys\n{code}\n", str(program)],
            env=environment(
                TRT_ET_CUDA="simulated:1", TRT_ET_ENGINE_FOLDER=str(folder), **variables
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, text: str) -> None:
        lines = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return
            lines.append(line)
        pytest.fail("".join(lines))

    def result(self) -> tuple[int, str]:
        out, errors = self.process.communicate(timeout=30)  # A build takes 60 s.
        return self.process.returncode, out + errors


@pytest.fixture
def begin(tmp_path: Path, fake_tensorrt: dict[str, str]) -> Iterator[Any]:
    started = []

    def start(program: Path, code: str) -> Loading:
        started.append(Loading(program, code, tmp_path, fake_tensorrt))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait(60)


@pytest.mark.parametrize("load", [_STOCK, _OURS], ids=["stock", "load_program"])
def test_ctrl_c_ends_a_build(begin: Any, programs: dict[str, Path], load: str) -> None:
    loading = begin(programs["long"], load + "load()")
    loading.wait_for("builds an engine")
    loading.process.send_signal(signal.SIGINT)
    status, text = loading.result()
    assert status == -signal.SIGINT, text
    assert text.rstrip().endswith("KeyboardInterrupt")
    assert "RuntimeError" not in text


def test_ctrl_c_ends_trt_et_build(begin: Any, programs: dict[str, Path]) -> None:
    loading = begin(programs["long"], _BUILD + "load()")
    loading.wait_for("builds an engine")
    loading.process.send_signal(signal.SIGINT)
    status, text = loading.result()
    assert status == 128 + signal.SIGINT, text


def test_ctrl_c_ends_a_wait(begin: Any, programs: dict[str, Path], tmp_path: Path) -> None:
    assert begin(programs["short"], _STOCK + "load()").result()[0] == 0
    (engine,) = tmp_path.glob("*.engine")
    engine.unlink()
    with engine.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        loading = begin(programs["short"], _STOCK + "load()")
        loading.wait_for("waits for another process")
        loading.process.send_signal(signal.SIGINT)
        status, text = loading.result()
    assert status == -signal.SIGINT, text
    assert text.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(("handler", "expected"), [("sys.exit(3)", 3), ("1 / 0", 1)])
def test_what_a_handler_raises_is_raised_by_the_load(
    begin: Any, programs: dict[str, Path], handler: str, expected: int
) -> None:
    code = f"signal.signal(signal.SIGTERM, lambda *_: {handler})\n"
    code += "try: load()\nexcept RuntimeError: print('RuntimeError')\n"
    loading = begin(programs["long"], _STOCK + code)
    loading.wait_for("builds an engine")
    loading.process.send_signal(signal.SIGTERM)
    status, text = loading.result()
    assert status == expected, text
    assert "RuntimeError" not in text
    assert ("ZeroDivisionError" in text) == (expected == 1)


def test_a_handler_that_raises_nothing_ends_nothing(begin: Any, programs: dict[str, Path]) -> None:
    code = "signal.signal(signal.SIGTERM, lambda *_: print('handled', flush=True))\n"
    loading = begin(programs["short"], _STOCK + code + "load(); print('loaded')")
    loading.wait_for("builds an engine")
    loading.process.send_signal(signal.SIGTERM)
    status, text = loading.result()
    assert (status, text.splitlines()[:2]) == (0, ["handled", "loaded"]), text


def test_progress_on_a_thread_of_tensorrts_waits_for_no_interpreter(
    begin: Any, programs: dict[str, Path]
) -> None:
    loading = begin(programs["aside"], _STOCK + "load(); print('loaded')")
    status, text = loading.result()
    assert status == 0, text
    assert "loaded" in text


def test_a_program_goes_on_after_a_load_that_was_interrupted(
    begin: Any, programs: dict[str, Path]
) -> None:
    code = """
try: load()
except KeyboardInterrupt: print("interrupted", flush=True)
sys.argv[1] = sys.argv[1].replace("long", "short")
load(); print("loaded")
"""
    loading = begin(programs["long"], _STOCK + code)
    loading.wait_for("builds an engine")
    loading.process.send_signal(signal.SIGINT)
    status, text = loading.result()
    assert (status, text.splitlines()[:2]) == (0, ["interrupted", "loaded"]), text
