"""Programs to run: the request, the process that runs it, and the loaded method.

A damaged file or a driver can crash that process; the command still prints one line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import trt_et.runtime
from trt_et.blob.model import BACKEND_ID, EngineInfo
from trt_et.errors import OptionError, PluginError, RunError
from trt_et.inspection import MethodInfo, inspect_file
from trt_et.inspection.data_file import expected_file
from trt_et.runtime.explain import explained_errors


@dataclass(frozen=True)
class Request:
    """One task for a worker.

    Attributes:
        task: ``run``, ``compare`` or ``bench``.
        method: The method's name; empty: the first.
        cuda: ``real``, ``simulated:N``, or empty for the value of ``TRT_ET_CUDA``; without this, as
            ``choose_gpus`` chooses.
        inputs: Files (``.npy``, ``.npz``, raw bytes) or numbers, in the order of the inputs; empty:
            random ones.
        shapes: Sizes of dynamic inputs by their index.
        output: The ``.npz`` to write the outputs to; empty: none.
        eager: ``MODULE:CALLABLE`` to compare with.
        per_partition: Also compare each engine.
        excluded_ops: The option of the file's export, for ``per_partition``; so is
            ``min_block_size``.
        warm_up: Untimed runs before the ``repeat`` timed ones.
        data: The program's second file (``.ptd``); empty: the one that it names, if it exists.
    """

    task: str
    file: str
    method: str = ""
    cuda: str = ""
    inputs: Sequence[str] = ()
    shapes: dict[str, list[int]] = field(default_factory=dict)
    seed: int = 0
    output: str = ""
    eager: str = ""
    per_partition: bool = False
    excluded_ops: Sequence[str] = ()
    min_block_size: int = 1
    warm_up: int = 0
    repeat: int = 1
    data: str = ""


def ask_worker(request: Request) -> dict[str, Any]:
    """Do a task in another process, and return its answer.

    Raises:
        RunError: The program cannot be run.
        OptionError: The program lacks the method or an input.
    """
    method = choose_method(request, verify=True)
    cuda = choose_gpus(request.cuda, method)
    if cuda != request.cuda:
        # The plugin prints once that it simulates GPUs; what the worker prints is not shown.
        trt_et.runtime.load("auto")
        trt_et.runtime.device_count()
        request = replace(request, cuda=cuda)
    with tempfile.TemporaryDirectory(prefix="trt-et-") as folder:
        file = Path(folder, "answer")
        path = os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-m", "trt_et.cli.worker", str(file)],
            input=json.dumps(asdict(request)).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path},
        )
        if not file.is_file():
            raise RunError(f"{request.file}: {_failure(done.returncode, done.stdout)}")
        answer: dict[str, Any] = json.loads(file.read_text())
    if answer.get("wrong_usage"):
        raise OptionError(answer["error"])
    if "error" in answer:
        raise RunError(f"{request.file}: {answer['error']}")
    return answer


def _failure(code: int, printed: bytes) -> str:
    lines = printed.decode(errors="replace").strip().splitlines()
    last = f"; its last line: {lines[-1].strip()[:200]}" if lines else ""
    if code < 0:
        return f"the runtime crashed with {signal.Signals(-code).name}{last}"
    return f"the runtime ended with exit status {code}{last}"


def choose_method(request: Request, *, verify: bool) -> MethodInfo:
    """Return the method that a request names.

    Raises:
        BlobError: The file is not a program, or is damaged.
        RunError: One of its engines is damaged.
        OptionError: The program lacks the method.
    """
    program = inspect_file(request.file, verify=verify, data=request.data or None)
    if program.problems:
        raise RunError(f"{request.file} is damaged: {'; '.join(program.problems)}")
    return program.method(request.method, request.file)


def choose_gpus(cuda: str, method: MethodInfo) -> str:
    """Return the mode of the GPUs: without a real one, simulated ones for reference engines.

    Args:
        cuda: ``real``, ``simulated:N`` or ``auto:N``; empty: the caller did not choose.
        method: All its engines are reference engines, or the mode stays.
    """
    reference = _reference_engines(method)
    if cuda or os.environ.get("TRT_ET_CUDA") or not reference:
        return cuda
    status = trt_et.runtime.status()
    if status["cuda"] and not status["problem"]:
        return cuda  # This process has GPUs.
    return f"auto:{1 + max(engine.device_id or 0 for engine in reference)}"


def _reference_engines(method: MethodInfo) -> list[EngineInfo]:
    """Return the engines of a method; empty: some are no reference engines."""
    engines = [one.engine for one in method.delegates if one.backend_id == BACKEND_ID]
    known = [engine for engine in engines if engine is not None and engine.builder == "reference"]
    return known if len(known) == len(engines) else []


class LoadedMethod:
    """A method that can be run.

    Attributes:
        method: Its facts.
        load_seconds: Seconds that it took to load it.
    """

    def __init__(self, request: Request) -> None:
        self.method = choose_method(request, verify=False)
        self._load_plugin(choose_gpus(request.cuda, self.method))
        # The bindings need torch's libraries. ``executorch.runtime`` around them imports the whole
        # exporter, which takes seconds.
        import torch  # noqa: F401
        from executorch.extension.pybindings import _C

        data = request.data or self._data_file(request.file)
        begin = time.perf_counter()
        with explained_errors("the program cannot be loaded"):
            self._program = _C._load_program(
                request.file,
                data_path=data,
                program_verification=_C.Verification.InternalConsistency,
            )
            self._loaded = self._program.load_method(self.method.name)
        self.load_seconds = time.perf_counter() - begin

    def _load_plugin(self, cuda: str) -> None:
        try:
            trt_et.runtime.load(cuda or None)
        except PluginError as error:
            if cuda == "real" and _reference_engines(self.method):
                raise PluginError(
                    f"{error}; reference engines run with --cuda simulated:1"
                ) from error
            raise

    def _data_file(self, program: str) -> str | None:
        files = (expected_file(program, one.compile_specs) for one in self.method.delegates)
        file = next((file for file in files if file is not None), None)
        if file is not None and not file.is_file():
            raise RunError(f"its engines are in {file}, which does not exist; use --data FILE.ptd")
        return None if file is None else str(file)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """Run it."""
        with explained_errors("the program cannot be run"):
            return list(self._loaded(inputs))
