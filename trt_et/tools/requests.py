"""What a worker process is asked to do with a program, and what it answers.

Programs run in a process of their own: a damaged file or a driver that crashes ends the worker, and
the command still says in one line what happened.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trt_et.errors import OptionError, RunError
from trt_et.inspection import MethodInfo, inspect_file

__all__ = ["Request", "ask_worker", "choose_method"]


@dataclass(frozen=True)
class Request:
    """One task for a worker.

    Attributes:
        task: ``run``, ``compare`` or ``bench``.
        file: The program.
        method: The method's name; empty: the first.
        cuda: ``real``, ``simulated:N``, or empty for what ``TRT_ET_CUDA`` says.
        inputs: Files (``.npy``, ``.npz``, raw bytes) or numbers, in the order of the inputs; empty:
            random ones.
        shapes: Sizes of inputs by their index, where they are dynamic.
        seed: Of the random inputs.
        output: Where outputs are written (``.npz``); empty: nowhere.
        eager: ``MODULE:CALLABLE`` to compare with.
        per_partition: Whether each engine is compared, too.
        excluded_ops: What the file's export left to the CPU, for ``per_partition``.
        min_block_size: That of the file's export, for ``per_partition``.
        warm_up: Runs that are not timed.
        repeat: Runs that are timed.
    """

    task: str
    file: str
    method: str = ""
    cuda: str = ""
    inputs: tuple[str, ...] = ()
    shapes: dict[str, list[int]] = field(default_factory=dict)
    seed: int = 0
    output: str = ""
    eager: str = ""
    per_partition: bool = False
    excluded_ops: tuple[str, ...] = ()
    min_block_size: int = 1
    warm_up: int = 0
    repeat: int = 1

    def timed(self, warm_up: int, repeat: int) -> Request:
        """The same with so many calls."""
        return replace(self, warm_up=warm_up, repeat=repeat)


def ask_worker(request: Request, timeout: float | None = None) -> dict[str, Any]:
    """Let another process do it.

    Raises:
        RunError: The program cannot be run; says why.
        OptionError: It does not have what is asked for.
    """
    choose_method(request, verify=True)
    with tempfile.TemporaryDirectory(prefix="trt-et-") as folder:
        answer, log = Path(folder, "answer"), Path(folder, "log")
        path = os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])
        command = [sys.executable, "-m", "trt_et.tools.worker", str(answer)]
        with log.open("wb") as opened:
            try:
                done = subprocess.run(
                    command,
                    input=json.dumps(asdict(request)).encode(),
                    stdout=opened,
                    stderr=opened,
                    timeout=timeout,
                    env={**os.environ, "PYTHONPATH": path},
                )
            except subprocess.TimeoutExpired as error:
                raise RunError(f"{request.file} did not finish in {timeout:.0f} s") from error
        if not answer.is_file():
            raise RunError(f"{request.file}: {_how_it_ended(done.returncode)}{_last_line(log)}")
        found: dict[str, Any] = json.loads(answer.read_text())
    if found.get("wrong_usage"):
        raise OptionError(found["error"])
    if "error" in found:
        raise RunError(f"{request.file}: {found['error']}")
    return found


def choose_method(request: Request, *, verify: bool) -> MethodInfo:
    """The method that is asked for.

    Raises:
        BlobError: The file is no program, or damaged.
        RunError: One of its engines is damaged.
        OptionError: It has no such method.
    """
    program = inspect_file(request.file, verify=verify)
    if program.problems:
        raise RunError(f"{request.file} is damaged: {'; '.join(program.problems)}")
    methods = {method.name: method for method in program.methods}
    name = request.method or program.methods[0].name
    if name not in methods:
        names = ", ".join(methods)
        raise OptionError(f"{request.file} has no method {name!r}; it has {names}")
    return methods[name]


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"the runtime crashed with {signal.Signals(-code).name}"
    return f"the runtime ended with exit status {code}"


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"; its last line: {lines[-1][:200]}" if lines else ""
