"""Figures that tests in Python hold: those with the mark ``reliability``."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Final

from tests.support.native_environment import ROOT, environment, run
from tests.support.reliability.figures import Amounts, Part

_HELD: Final = ("R4", "R5", "R6", "R7", "R11", "R12", "R13", "R14")


def marked_tests(folder: Path, amounts: Amounts) -> list[Part]:
    """Run them; a figure is missed where one of its tests fails, is skipped, or none is there."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    marked = [path for path in tests if "pytest.mark.reliability(" in path.read_text()]
    report = folder / "python_tests.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "reliability"]
    command += ["--long", "--numprocesses", "2", "--dist", "loadfile"]
    env = environment(
        TRT_ET_CACHE_KILLS=str(amounts.cache_kills),
        TRT_ET_EXPORT_PROCESSES="10",
        OMP_NUM_THREADS="1",
    )
    done = run(*command, f"--junitxml={report}", *marked, folder=ROOT, env=env, timeout=None)
    passed: dict[str, int] = dict.fromkeys(_HELD, 0)
    failed: dict[str, list[str]] = {figure: [] for figure in _HELD}
    for case in xml.parse(report).iter("testcase") if report.is_file() else ():
        wrong = any(child.tag in ("failure", "error", "skipped") for child in case)
        for figure in (p.get("value", "") for p in case.iter("property")):
            if wrong:
                failed[figure].append(case.get("name", ""))
            else:
                passed[figure] += 1
    parts = []
    for figure, names in failed.items():
        text = f"{passed[figure]} tests in Python"
        if names or not passed[figure]:
            text += f"; failed: {', '.join(names[:3]) or done.stdout.strip()[-200:]}"
        parts.append(Part(figure, passed[figure] > 0 and not names, text))
    return parts
