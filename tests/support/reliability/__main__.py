"""``make reliability`` and ``make reliability-long``: prints a line for each figure.

Exits with status 1 where one of them is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.reliability import files, memory, native, python_tests
from tests.support.reliability.figures import LONG, SHORT, Part, lines
from tests.support.reliability.programs import export_programs

Job = Callable[[], list[Part]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make reliability", description=__doc__)
    parser.add_argument("--asan", type=Path, required=True, help="the native tests under ASan")
    parser.add_argument("--tsan", type=Path, required=True, help="the native tests under TSan")
    parser.add_argument("--hard-use", type=Path, required=True, help="trt_et_hard_use")
    parser.add_argument("--fakes", type=Path, required=True, help="folder of the fake TensorRTs")
    parser.add_argument("--blob", type=Path, required=True, help="what make_blob.py wrote")
    parser.add_argument("--long", action="store_true", help="an hour or more")
    parser.add_argument("--minutes", type=float, default=600.0, help="mutants are counted so long")
    parser.add_argument("--only", nargs="*", default=[], help="jobs, by their names")
    return parser.parse_args()


def _jobs(given: argparse.Namespace, folder: Path, end: float) -> dict[str, Job]:
    import trt_et.runtime

    amounts = LONG if given.long else SHORT
    asan = native.NativeTests(given.asan, given.blob)
    tsan = native.NativeTests(given.tsan, given.blob)
    use = files.HardUse(given.hard_use, trt_et.runtime.plugin_path(), given.fakes, folder)
    programs = export_programs(folder)
    jobs: dict[str, Job] = {
        "asan": lambda: native.under_asan(asan, amounts),
        "tsan": lambda: native.under_tsan(tsan, amounts),
        "python": lambda: python_tests.marked_tests(folder, amounts),
        "blobs": lambda: files.flips_in_blobs(use, programs, amounts),
        "files": lambda: files.flips_elsewhere(use, programs["mlp"], amounts),
        "cycles": lambda: memory.cycles(use, programs["two"], amounts),
        "executes": lambda: memory.executes(use, programs["fake"], amounts),
        "soak": lambda: memory.soak(use, [programs[n] for n in ("mlp", "two", "fake")], amounts),
        "mutants": lambda: native.count_mutants(asan, amounts, end),
    }
    return {name: job for name, job in jobs.items() if not given.only or name in given.only}


def _safely(name: str, job: Job) -> list[Part]:
    begun = time.time()
    try:
        parts = job()
    except Exception as error:  # One figure's trouble must not hide the others.
        parts = [Part(figure, False, f"{name}: {error}") for figure in _OF_JOB.get(name, ())]
    sys.stderr.write(f"{name}: {time.time() - begun:.0f} s\n")
    for part in parts:
        sys.stderr.write(f"  {part.figure} {'ok' if part.ok else 'MISSED'} {part.text}\n")
    return parts


_OF_JOB = {
    "blobs": ("R3",),
    "files": ("R4",),
    "cycles": ("R8",),
    "executes": ("R9",),
    "soak": ("R8",),
    "asan": ("R2", "R5", "R10"),
    "tsan": ("R7",),
    "mutants": ("R1",),
    "python": ("R6", "R11", "R12", "R13", "R14"),
}


def main() -> int:
    """Measure, print, and return the exit status."""
    given = _arguments()
    end = time.time() + given.minutes * 60
    with tempfile.TemporaryDirectory(prefix="trt-et-") as name, ThreadPoolExecutor(2) as pool:
        jobs = _jobs(given, Path(name), end)
        started = [pool.submit(_safely, *job) for job in jobs.items()]
        found = lines(part for job in started for part in job.result())
    sys.stdout.write("\n".join(found) + "\n")
    return int(any(" MISSED " in line for line in found))


if __name__ == "__main__":
    sys.exit(main())
