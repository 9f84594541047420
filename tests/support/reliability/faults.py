"""``make faults``: deliberate faults in our own code, and whether its tests notice.

``faults.json`` has them as text to find and to replace. Each is applied to a copy of the tree, and
the tests that should fail with it run there. A text that is no longer in its file is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.native_environment import ROOT
from tests.support.reliability.native import NativeTests

__all__ = ["Fault", "faulty", "read_faults"]

_LIST = Path(__file__).with_name("faults.json")
# An editable install would put this tree before the copy.
_PYTEST = (
    "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Redirecting' not in "
    "type(f).__name__]; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)
_BUILDS = {"native": "address,undefined", "thread": "thread"}


@dataclass(frozen=True)
class Fault:
    """A fault, and the tests that must fail with it."""

    name: str
    file: str
    find: str
    replace: str
    native: tuple[str, ...] = ()
    thread: tuple[str, ...] = ()
    python: tuple[str, ...] = ()


def read_faults() -> list[Fault]:
    """Those of the list."""
    entries: list[dict[str, Any]] = json.loads(_LIST.read_text())
    for entry in entries:
        for tests in entry.keys() & {"native", "thread", "python"}:
            entry[tests] = tuple(entry[tests])
    return [Fault(**entry) for entry in entries]


def faulty(fault: Fault, text: str) -> str:
    """The file with the fault.

    Raises:
        ValueError: What is to be replaced does not stand there exactly once.
    """
    if text.count(fault.find) != 1:
        raise ValueError(
            f"{fault.name}: {fault.file} has {text.count(fault.find)} times {fault.find!r}"
        )
    return text.replace(fault.find, fault.replace)


def _build(tree: Path, name: str) -> Path:
    """The native tests of a copy; its folder is kept from one fault to the next."""
    folder = tree / "build" / name
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    options = ["-DTRT_ET_BUILD_TESTS=ON", f"-DTRT_ET_SANITIZE={_BUILDS[name]}"]
    for command in (
        [
            "-S",
            tree,
            "-B",
            folder,
            "-G",
            "Ninja",
            f"-DPython3_EXECUTABLE={sys.executable}",
            *options,
        ],
        ["--build", folder, "--target", "trt_et_native_tests"],
    ):
        done = subprocess.run(
            ["cmake", *map(str, command)],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the faulty tree does not build: {done.stdout[-1500:]}")
    return folder / "tests/runtime/native/trt_et_native_tests"


def _is_caught(fault: Fault, tree: Path, blob: Path) -> bool:
    for kind, tests in (("native", fault.native), ("thread", fault.thread)):
        if tests and NativeTests(_build(tree, kind), blob).run(tests)[1]:
            return True
    if not fault.python:
        return False
    done = subprocess.run(
        [sys.executable, "-c", _PYTEST, "-q", "-x", "-p", "no:cacheprovider", *fault.python],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "TRT_ET_CACHE_KILLS": "5"},
        capture_output=True,
        check=False,
    )
    return done.returncode == 1  # Not 2 to 5: those say that pytest did not run them.


def main() -> int:
    """Apply each fault, print what came of it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--blob", type=Path, required=True, help="what make_blob.py wrote")
    parser.add_argument("--tree", type=Path, required=True, help="for the copy; kept")
    parser.add_argument("--only", default="", help="faults with this in their names")
    given = parser.parse_args()
    tree, blob = given.tree.resolve(), given.blob.resolve()
    missed = 0
    for fault in read_faults():
        if given.only not in fault.name:
            continue
        for part in ("trt_et", "tests", "CMakeLists.txt", "pyproject.toml"):
            _copy(ROOT / part, tree / part)
        file = tree / fault.file
        file.write_text(faulty(fault, file.read_text()))
        caught = _is_caught(fault, tree, blob)
        missed += not caught
        sys.stdout.write(f"{'caught' if caught else 'NOT CAUGHT'}: {fault.name}\n")
        sys.stdout.flush()
    return int(missed > 0)


def _copy(source: Path, target: Path) -> None:
    """What differs, so that little is built again."""
    files = [source] if source.is_file() else [p for p in source.rglob("*") if p.is_file()]
    for file in files:
        copy = target / file.relative_to(source) if source.is_dir() else target
        if "__pycache__" in file.parts:
            continue
        if copy.is_file() and copy.read_bytes() == file.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


if __name__ == "__main__":
    sys.exit(main())
