"""Figures of damaged program files: R3 and R4."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.native_environment import environment
from tests.support.reliability.figures import Amounts, Part

__all__ = ["HardUse", "flips_elsewhere", "flips_in_blobs", "span_of_blob"]

_SIGNAL: Final = 100  # And above: a signal, as flips.cpp has it.
_SEED: Final = 5


@dataclass(frozen=True)
class HardUse:
    """The program of tests/runtime/hard_use, on simulated GPUs.

    Attributes:
        binary: The program.
        plugin: The plugin's library.
        fakes: The folder of the fakes of TensorRT.
        folder: For files in between.
    """

    binary: Path
    plugin: Path
    fakes: Path
    folder: Path

    def run(
        self, *words: object, noop: bool = False, library: str = "libfake_nvinfer.so", gpus: int = 4
    ) -> dict[str, float]:
        """Run a command; the numbers that it printed.

        Raises:
            RuntimeError: It failed; the message holds the end of what it said.
        """
        plugin = f"noop:{self.plugin}" if noop else str(self.plugin)
        done = subprocess.run(
            [str(self.binary), plugin, *map(str, words)],
            env=environment(
                TRT_ET_CUDA=f"simulated:{gpus}",
                TRT_ET_TENSORRT_LIBRARY=str(self.fakes / library),
                TRT_ET_RUNTIME_CACHE="off",
                OMP_NUM_THREADS="1",
            ),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
        return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


def span_of_blob(program: bytes) -> tuple[int, int]:
    """Where the first engine's blob is in a program, and where it ends."""
    from trt_et.inspection import inspect_program

    blob = bytes(inspect_program(program)[0].delegates[0].blob)
    begin = program.index(blob)
    return begin, begin + len(blob)


def flips_in_blobs(use: HardUse, programs: dict[str, Path], amounts: Amounts) -> list[Part]:
    """R3: flips of one bit in the blob of each program; ``rtx`` has a real engine of TensorRT-RTX.

    The fakes of TensorRT count their calls: an intact blob makes some, a damaged one none.
    """
    cases = missed = 0
    for name in ("fake", "rtx"):
        library = "libfake_tensorrt_rtx.so" if name == "rtx" else "libfake_nvinfer.so"
        begin, end = span_of_blob(programs[name].read_bytes())
        chance = random.Random(_SEED)
        listed = [
            (chance.randrange(begin, end), chance.randrange(8))
            for _ in range(amounts.flips_in_blob)
        ]
        file = use.folder / f"{name}.cases"
        file.write_text("".join(f"flip {at} {bit}\n" for at, bit in listed))
        found = use.run("blob", programs[name], file, library=library)
        if not found["intact_library_calls"]:
            return [Part("R3", False, f"the intact engine of '{name}' does not reach its library")]
        cases += int(found["cases"])
        missed += int(found["cases"] - found["refused"] + found["library_calls"])
        missed += int(found["without_reason"])
    return [Part("R3", missed == 0, f"{cases} flips in engine blobs, {missed} reached the library")]


def _cases(program: bytes, count: int) -> list[str]:
    """Flips outside of the blob, truncations, and pieces that change places."""
    begin, end = span_of_blob(program)
    outside = len(program) - (end - begin)
    chance = random.Random(_SEED)
    cases = []
    for _ in range(count):
        at = chance.randrange(outside)
        cases.append(f"flip {at if at < begin else at - begin + end} {chance.randrange(8)}")
    cases += [f"cut {chance.randrange(len(program))}" for _ in range(count // 10)]
    size = max(min(begin, len(program) - begin) // 4, 1)
    for _ in range(count // 10):
        first = chance.randrange(begin - size)
        cases.append(f"swap {first} {chance.randrange(begin, len(program) - size)} {size}")
    return cases


def _is_crash(outcome: int) -> bool:
    return outcome >= _SIGNAL


def flips_elsewhere(use: HardUse, program: Path, amounts: Amounts) -> list[Part]:
    """R4: the same damage to the same file, with our delegate and with one that does nothing."""
    cases = _cases(program.read_bytes(), amounts.flips_elsewhere)
    file = use.folder / "elsewhere.cases"
    file.write_text("\n".join(cases) + "\n")
    outcomes = {}
    for noop in (True, False):
        results = use.folder / f"elsewhere.{noop}"
        use.run("flips", program, file, results, noop=noop)
        outcomes[noop] = results.read_bytes()
    stock, ours = (sum(map(_is_crash, outcomes[noop])) for noop in (True, False))
    own = [
        case
        for case, theirs, found in zip(cases, outcomes[True], outcomes[False], strict=True)
        if _is_crash(found) and not _is_crash(theirs)
    ]
    kinds: Counter[Any] = Counter(min(outcome, _SIGNAL) for outcome in outcomes[False])
    text = (
        f"{len(cases)} damaged files: {ours} crashes, {stock} with a no-op delegate; "
        f"{kinds[0]} right, {kinds[1] + kinds[2]} refused, {kinds[3]} ran with other outputs"
    )
    if own:
        text += f"; only ours: {', '.join(own[:5])}"
    return [Part("R4", ours <= stock and not own, text)]
