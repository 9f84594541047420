"""Python code in a process of its own, without the seconds that importing ExecuTorch takes.

One process of this module for each process of pytest imports torch and ExecuTorch's runtime, and
forks for every piece of code. The plugin is not loaded in it, nor is any variable of ours read: the
code begins as in ``python -c``, but for those imports, and its crash is nobody else's. What must
see the imports themselves, libraries on ``LD_LIBRARY_PATH`` or a hash seed starts a Python.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.native_environment import ROOT, environment

SECONDS = 600


def run_forked(
    code: str, *arguments: object, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code to its end, or until it took far too long.

    Args:
        code: As for ``python -c``.
        arguments: Strings of them are in ``sys.argv`` from 1.
        cwd: Where it runs.
        env: All variables; by default those of :func:`environment`.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = [f"{folder}/stdout", f"{folder}/stderr"]
        request = {
            "code": code,
            "argv": ["-c", *map(str, arguments)],
            "cwd": str(cwd),
            "env": dict(environment() if env is None else env),
            "output": output,
        }
        server = _server()
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        texts = [Path(path).read_text(errors="replace") for path in output]
    return subprocess.CompletedProcess(["python", "-c", code], status, *texts)


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.python_process"],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.wait)
    atexit.register(server.stdin.close)
    return server


def _serve() -> None:
    """Fork for each request; returns in the child, to end it as any Python ends."""
    import executorch.runtime  # noqa: F401
    import torch  # noqa: F401

    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Else a child looks at each object of its parent when it ends, which copies all of their pages.
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _execute(json.loads(line))
            return
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, file=answers, flush=True)


def _execute(request: dict) -> None:
    signal.alarm(SECONDS)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(request["output"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    _serve()
