"""Figures that tests in Python hold: those with the mark ``reliability``."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Final

from tests.support.native_environment import ROOT, run
from tests.support.reliability.figures import Amounts, Part

_HELD: Final = {
    "R4": "damaged files through executor_runner and the Python runtime",
    "R5": "failing calls in the Python runtime, file calls in both caches",
    "R6": "mismatches, each with a reason of its own, other programs go on",
    "R7": "Python threads",
    "R11": "killed, concurrent, corrupt and stale cache entries",
    "R12": "exports of one model in 10 processes, byte-identical",
    "R13": "exports on a full disk, or killed: no partial file",
    "R14": "imports and loads without driver or TensorRT, or twice",
}


def _files() -> list[str]:
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path) for path in tests if "pytest.mark.reliability(" in path.read_text()]


def marked_tests(folder: Path, amounts: Amounts) -> list[Part]:
    """Run them; a figure is missed where one of its tests fails, is skipped, or none is there."""
    report = folder / "python_tests.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "reliability"]
    env = {**os.environ, "TRT_ET_CACHE_KILLS": str(amounts.cache_kills)}
    env |= {"TRT_ET_EXPORT_PROCESSES": "10", "OMP_NUM_THREADS": "1"}
    command += [f"--junitxml={report}", *_files()]
    done = run(*command, folder=ROOT, env=env, timeout=None)
    if not report.is_file():
        return [Part(figure, False, done.stdout.strip()[-200:]) for figure in _HELD]
    passed: dict[str, list[str]] = {figure: [] for figure in _HELD}
    failed: dict[str, list[str]] = {figure: [] for figure in _HELD}
    for case in xml.parse(report).iter("testcase"):
        wrong = any(child.tag in ("failure", "error", "skipped") for child in case)
        for figure in (p.get("value", "") for p in case.iter("property")):
            (failed if wrong else passed)[figure].append(case.get("name", ""))
    parts = []
    for figure, what in _HELD.items():
        bad = f"; failed: {', '.join(failed[figure][:3])}" if failed[figure] else ""
        text = f"{len(passed[figure])} tests of {what}{bad}"
        parts.append(Part(figure, bool(passed[figure]) and not bad, text))
    return parts
