"""examples/serving in a process of its own, on a free port."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.native_environment import ROOT, environment

FOLDER = ROOT / "examples/serving"
# `uvicorn --fd` takes every socket for a Unix one, without TCP_NODELAY: answers take 40 ms more.
_SERVE = """
import socket, sys, uvicorn
sys.path.insert(0, sys.argv[1])
config = uvicorn.Config("app:app", access_log=False, log_level="warning")
uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[2]))])
"""


@contextlib.contextmanager
def served(model: Path, log: Path, **variables: str) -> Iterator[tuple[int, int]]:
    """Serve a program; yield the server's process id, and its port, which takes requests at once.

    The server must end orderly.
    """
    variables = {"MODEL": str(model), "TRT_ET_CUDA": "simulated:1", **variables}
    with socket.create_server(("127.0.0.1", 0)) as listening, log.open("w") as stderr:
        number = listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, FOLDER, str(number)],
            env=environment(OMP_NUM_THREADS="1", **variables),
            pass_fds=[number],
            stderr=stderr,
        )
        port = listening.getsockname()[1]
    try:
        yield process.pid, port
    finally:
        process.terminate()
        status = process.wait(60)
    assert status in (0, -15), log.read_text()
