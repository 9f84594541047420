"""``make reliability`` and ``make reliability-long``: prints a line for each figure.

Exits with status 1 if a figure is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.support.reliability import native, python_tests
from tests.support.reliability.figures import LONG, SHORT, Part, lines
from tests.support.reliability.hard_use import HardUse, export_programs

Job = Callable[[], list[Part]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make reliability", description=__doc__)
    parser.add_argument("--asan", type=Path, required=True, help="the native tests under ASan")
    parser.add_argument("--tsan", type=Path, required=True, help="the native tests under TSan")
    parser.add_argument("--hard-use", type=Path, required=True, help="trt_et_hard_use")
    parser.add_argument("--fakes", type=Path, required=True, help="folder of the fake TensorRTs")
    parser.add_argument("--blob", type=Path, required=True, help="what make_blob.py wrote")
    parser.add_argument("--long", action="store_true", help="an hour or more")
    parser.add_argument("--minutes", type=float, default=600.0, help="limit of the mutants' time")
    return parser.parse_args()


def _jobs(given: argparse.Namespace, folder: Path, end: float) -> dict[str, tuple[str, Job]]:
    import trt_et.runtime

    amounts = LONG if given.long else SHORT
    asan, tsan = (given.asan, given.blob, amounts), (given.tsan, given.blob, amounts)
    plugin, programs = trt_et.runtime.plugin_path(), export_programs(folder)
    use = HardUse(given.hard_use, plugin, given.fakes, folder, programs, amounts)
    return {
        # The longest first.
        "mutants": ("R1", lambda: native.count_mutants(*asan, end)),
        "asan": ("R2 R5 R10", lambda: native.under_asan(*asan)),
        "tsan": ("R7", lambda: native.under_tsan(*tsan)),
        "blobs": ("R3", use.flips_in_blobs),
        "files": ("R4", use.flips_elsewhere),
        "cycles": ("R8", use.cycles),
        "executes": ("R9", use.executes),
        "soak": ("R8", use.soak),
        "python": ("R6 R11 R12 R13 R14", partial(python_tests.marked_tests, folder, amounts)),
    }


def _safely(name: str, figures: str, job: Job) -> list[Part]:
    begun = time.time()
    try:
        parts = job()
    except Exception as error:  # One figure's trouble must not hide the others.
        parts = [Part(figure, False, f"{name}: {error}") for figure in figures.split()]
    sys.stderr.write(f"{name}: {time.time() - begun:.0f} s\n")
    for part in parts:
        sys.stderr.write(f"  {part.figure} {'ok' if part.ok else 'MISSED'} {part.text}\n")
    return parts


def main() -> int:
    given = _arguments()
    end = time.time() + given.minutes * 60
    with tempfile.TemporaryDirectory(prefix="trt-et-") as name, ThreadPoolExecutor(2) as pool:
        jobs = _jobs(given, Path(name), end)
        started = [pool.submit(_safely, job, *how) for job, how in jobs.items()]
        asked = {figure for figures, _ in jobs.values() for figure in figures.split()}
        found = lines(asked, (part for job in started for part in job.result()))
    sys.stdout.write("\n".join(found) + "\n")
    return int(any(" MISSED " in line for line in found))


if __name__ == "__main__":
    sys.exit(main())
