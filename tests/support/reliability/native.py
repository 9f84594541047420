"""Figures of the native tests, which print them: the runtime under sanitizers."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.native_environment import run
from tests.support.reliability.figures import Amounts, Part

_BATCH: Final = 1_000_000
_LINE: Final = re.compile(r"^(R\d+) ((\d+).*)$", re.MULTILINE)
# Half of the time goes into looking for uses of a stack after return: the run of all tests does.
_QUICKER: Final = "detect_leaks=1:detect_stack_use_after_return=0:quarantine_size_mb=8"
_OPTIONS: Final = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


@dataclass(frozen=True)
class NativeTests:
    """The native tests as one build has them."""

    binary: Path
    blob: Path  # A file that tests/runtime/native/make_blob.py wrote.

    def run(
        self, tests: tuple[str, ...] = (), asan: str = _OPTIONS["ASAN_OPTIONS"], **amounts: int
    ) -> tuple[dict[str, str], str]:
        """Run some of the tests, or all; what each figure is, and why the run failed if it did."""
        variables = {f"TRT_ET_{name.upper()}": str(value) for name, value in amounts.items()}
        env = {**os.environ, **_OPTIONS, "ASAN_OPTIONS": asan, **variables}
        done = run(self.binary, self.blob, *tests, env=env, timeout=None)
        found = {figure: text for figure, text, _ in _LINE.findall(done.stdout)}
        return found, "" if done.returncode == 0 else _reason(done)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The line that says most: a sanitizer's report, or else the last one."""
    told = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    words = ("SUMMARY:", "runtime error:", "CHECK", "ERROR:")
    last = f"exit status {done.returncode}: {told[-1][:200] if told else 'no message'}"
    return next((line[:200] for word in words for line in told if word in line), last)


def _part(figure: str, found: dict[str, str], failure: str, at_least: int) -> Part:
    """A figure is as promised where its test printed it, of as many cases as were asked for."""
    text = found.get(figure)
    if text is None:
        return Part(figure, False, failure or "its test did not run")
    return Part(figure, int(text.split()[0]) >= at_least, text)


def _failed_elsewhere(figure: str, parts: list[Part], failure: str) -> list[Part]:
    """A test without a figure failed: that must not pass unseen."""
    if failure and all(part.ok for part in parts):
        return [*parts, Part(figure, False, failure)]
    return parts


def under_asan(tests: NativeTests, amounts: Amounts) -> list[Part]:
    """R2, R5, R9 and R10: all native tests, with memory and undefined behaviour checked."""
    found, failure = tests.run(
        edits_per_byte=amounts.edits_per_byte, executes=amounts.sanitized_executes
    )
    wanted = {"R2": 4096 * amounts.edits_per_byte, "R5": 100}
    wanted |= {"R9": amounts.sanitized_executes, "R10": 50}
    parts = [_part(figure, found, failure, least) for figure, least in wanted.items()]
    return _failed_elsewhere("R5", parts, failure)


def under_tsan(tests: NativeTests, amounts: Amounts) -> list[Part]:
    """R7: all native tests, with data races checked."""
    found, failure = tests.run(
        thread_executes=amounts.thread_executes, thread_loads=amounts.thread_loads
    )
    parts = [_part("R7", found, failure, 8)]
    wanted = f"{8 * amounts.thread_executes} executes"
    if parts[0].ok and wanted not in parts[0].text:
        parts = [Part("R7", False, f"{parts[0].text}; asked for {wanted}")]
    return _failed_elsewhere("R7", parts, failure)


def count_mutants(tests: NativeTests, amounts: Amounts, end: float) -> list[Part]:
    """R1 in batches, each from another seed, until there are enough or the time is over."""
    done = 0
    while done < amounts.mutants and time.time() < end:
        seed = 20260801 + done
        found, failure = tests.run(
            ("blob_fuzz",), asan=_QUICKER, fuzz_mutants=_BATCH, fuzz_seed=seed
        )
        if failure or "R1" not in found:
            return [Part("R1", False, f"{done} mutants, then with seed {seed}: {failure}")]
        done += _BATCH
    text = f"{done} mutants, 0 findings"
    if done < amounts.mutants:
        text += f" (stopped; {amounts.mutants} are the goal)"
    return [Part("R1", done >= amounts.mutants, text)]
