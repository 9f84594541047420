"""Figures of the native tests, which print them: the runtime under sanitizers."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Final

from tests.support.native_environment import run
from tests.support.reliability.figures import Amounts, Part

_BATCH: Final = 1_000_000
_LINE: Final = re.compile(r"^(R\d+) (\d+.*)$", re.MULTILINE)
# Half of the time goes into looking for uses of a stack after return: the run of all tests does.
_QUICKER: Final = "detect_leaks=1:detect_stack_use_after_return=0:quarantine_size_mb=8"
_OPTIONS: Final = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}
_Found = tuple[dict[str, str], str]


def _run(binary: Path, *words: object, asan: str = "", **amounts: int) -> _Found:
    """Run native tests; what each figure is, and why the run failed if it did."""
    env = os.environ | _OPTIONS | ({"ASAN_OPTIONS": asan} if asan else {})
    env |= {f"TRT_ET_{name.upper()}": str(value) for name, value in amounts.items()}
    done = run(binary, *words, env=env, timeout=None)
    found = dict(_LINE.findall(done.stdout))
    if done.returncode == 0:
        return found, ""
    told = done.stderr.strip().splitlines()
    words = ("SUMMARY:", "runtime error:", "CHECK", "ERROR:")
    reports = [line for word in words for line in told if word in line]
    reason = (reports or told[-1:] or ["no message"])[0].strip()
    return found, f"exit status {done.returncode}: {reason[:200]}"


def _parts(found: dict[str, str], failure: str, **at_least: int) -> list[Part]:
    """A figure is as promised where its test printed it, of as many cases as were asked for."""
    parts = []
    for figure, least in at_least.items():
        text = found.get(figure, "")
        ok = bool(text) and int(text.split()[0]) >= least
        parts.append(Part(figure, ok, text or failure or "its test did not run"))
    if failure and all(part.ok for part in parts):
        # A test without a figure failed: that must not pass unseen.
        parts.append(Part(parts[0].figure, False, failure))
    return parts


def under_asan(binary: Path, blob: Path, amounts: Amounts) -> list[Part]:
    """R2, R5, R9 and R10: all native tests, with memory and undefined behaviour checked."""
    edits, executes = amounts.edits_per_byte, amounts.sanitized_executes
    found = _run(binary, blob, edits_per_byte=edits, executes=executes)
    return _parts(*found, R2=4096 * edits, R5=100, R9=executes, R10=50)


def under_tsan(binary: Path, blob: Path, amounts: Amounts) -> list[Part]:
    """R7: all native tests, with data races checked."""
    executes, loads = amounts.thread_executes, amounts.thread_loads
    parts = _parts(*_run(binary, blob, thread_executes=executes, thread_loads=loads), R7=8)
    wanted = f"{8 * executes} executes"
    if parts[0].ok and wanted not in parts[0].text:
        parts.append(Part("R7", False, f"asked for {wanted}"))
    return parts


def count_mutants(binary: Path, blob: Path, amounts: Amounts, end: float) -> list[Part]:
    """R1 in batches, each from another seed, until there are enough or the time is over."""
    done = 0
    while done < amounts.mutants and time.time() < end:
        seed = 20260801 + done
        batch = {"fuzz_mutants": _BATCH, "fuzz_seed": seed}
        found, failure = _run(binary, blob, "blob_fuzz", asan=_QUICKER, **batch)
        if failure or "R1" not in found:
            return [Part("R1", False, f"{done} mutants, then with seed {seed}: {failure}")]
        done += _BATCH
    text = f"{done} mutants, 0 findings"
    if done < amounts.mutants:
        text += f" (stopped; {amounts.mutants} are the goal)"
    return [Part("R1", done >= amounts.mutants, text)]
