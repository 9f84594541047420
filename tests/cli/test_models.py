"""What ``trt-et export`` leaves at its target where the disk is full, or it is killed."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir.program import ExecutorchProgramManager

from trt_et import TensorRTPartitioner
from trt_et.cli import models
from trt_et.errors import RunError

fork = multiprocessing.get_context("fork")


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    program = torch.export.export(torch.nn.Linear(64, 64), (torch.ones(1, 64),))
    monkeypatch.setattr(models, "_export", lambda name, steps: program)
    partitioner = TensorRTPartitioner(builder="reference")
    return lambda: models.export_model("m:x", partitioner, tmp_path / "out.pte")


@pytest.fixture(params=[None, b"the program of yesterday"])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> bytes | None:
    """The target's content before the export, if there is one."""
    if request.param is not None:
        (tmp_path / "out.pte").write_bytes(request.param)
    return request.param


def status_of(function: Callable[[], None]) -> int:
    child = fork.Process(target=function)
    child.start()
    child.join(120)
    assert child.exitcode is not None
    return child.exitcode


@pytest.mark.reliability("R13")
def test_a_full_disk_leaves_the_target_as_it_was(tmp_path, export, before, monkeypatch):
    write = ExecutorchProgramManager.write_to_file

    def without_room(self: ExecutorchProgramManager, file: Any) -> None:
        # What the system answers where a file cannot grow, without filling a disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        write(self, file)

    def with_a_full_disk() -> None:
        with pytest.raises(RunError, match=r"out\.pte cannot be written: .*File too large"):
            export()
        os._exit(7)

    monkeypatch.setattr(ExecutorchProgramManager, "write_to_file", without_room)
    assert status_of(with_a_full_disk) == 7
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([before] if before else [])


@pytest.mark.reliability("R13")
def test_a_killed_export_leaves_the_target_as_it_was(tmp_path, export, before, monkeypatch):
    target = tmp_path / "out.pte"

    def killed_in_the_middle(self: ExecutorchProgramManager, file: Any) -> None:
        file.write(bytes(self.buffer)[:1000])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(ExecutorchProgramManager, "write_to_file", killed_in_the_middle)
        assert status_of(export) == -signal.SIGKILL
    assert (target.read_bytes() if target.exists() else None) == before
    export()
    assert target.read_bytes()[4:6] == b"ET"


def test_its_temporary_file_cannot_be_guessed(tmp_path, export, monkeypatch):
    seen = []
    write = ExecutorchProgramManager.write_to_file

    def watched(self: ExecutorchProgramManager, file: Any) -> None:
        seen.append(Path(file.name).name)
        write(self, file)

    monkeypatch.setattr(ExecutorchProgramManager, "write_to_file", watched)
    export()
    export()
    assert len(set(seen)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out.pte"]
