"""The environment that tests give to the processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CMAKE = Path(sys.executable).with_name("cmake")
# Debian 12 has the oldest CMake that C++ programs need, 3.25.
OLDEST_CMAKE = Path("/usr/bin/cmake") if Path("/usr/bin/cmake").exists() else CMAKE


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment without our variables, with the source tree importable."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRT_ET_")}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return kept | {key: value for key, value in changes.items() if value is not None}


def run(
    *command: object,
    env: dict[str, str],
    folder: Path | None = None,
    timeout: float | None = 600,
) -> subprocess.CompletedProcess[str]:
    """Run a program and keep what it prints."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


def run_python(
    *arguments: str, folder: Path | None = None, **env: str | None
) -> subprocess.CompletedProcess[str]:
    """Run this Python in a process of its own; ``env`` as `environment` takes it."""
    return run(sys.executable, *arguments, folder=folder, env=environment(**env))


def run_simulated(*command: object) -> list[str]:
    """Return the lines that a program prints on a simulated GPU."""
    done = run(*command, env=environment(TRT_ET_CUDA="simulated:1"), timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def build(folder: Path, targets: list[str], *options: str) -> None:
    """Configure this tree into a folder and build targets of it, with this Python's cmake."""
    # Ninja lies beside the interpreter, too.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # Built quickly rather than fast.
    common = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_UNITY_BUILD=ON"]
    common += [f"-DPython3_EXECUTABLE={sys.executable}"]
    for command in (
        ["-S", str(ROOT), "-B", str(folder), *common, *options],
        ["--build", str(folder), "--target", *targets],
    ):
        done = run("cmake", *command, env={**os.environ, "PATH": path})
        assert done.returncode == 0, done.stdout + done.stderr
