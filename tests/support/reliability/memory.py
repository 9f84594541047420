"""Figures of memory over time: R8, R9, and the soak, which is of both."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.reliability.figures import Amounts, Part
from tests.support.reliability.files import HardUse

__all__ = ["cycles", "executes", "soak"]

_MIB: Final = 1 << 20
_SLOWER: Final = 1.5


def _more(found: dict[str, float]) -> str:
    return (
        f"{found['host_growth']:.0f} bytes more on the host, {found['device_growth']:.0f} on GPUs"
    )


def cycles(use: HardUse, program: Path, amounts: Amounts) -> list[Part]:
    """R8: loads and unloads."""
    found = use.run("cycles", program, amounts.cycles)
    host, device = found["host_growth"], found["device_growth"]
    text = f"{amounts.cycles} loads and unloads: {_more(found)}"
    return [Part("R8", host <= _MIB and device == 0 and found["engines"] == 0, text)]


def executes(use: HardUse, program: Path, amounts: Amounts) -> list[Part]:
    """R9: runs of one method in the stock runtime."""
    found = use.run("executes", program, amounts.executes)
    host, device = found["host_growth"], found["device_growth"]
    text = f"{amounts.executes} executes of a program: {_more(found)}"
    flat = host <= _MIB and device == 0 and found["device_mallocs"] == 0
    return [Part("R9", flat and found["same_outputs"] == 1, text)]


def soak(use: HardUse, programs: list[Path], amounts: Amounts) -> list[Part]:
    """R8 again: four threads load, run and unload, for a long time.

    The time of a run is the processor's, so that other programs on the machine do not count.
    """
    found = use.run("soak", amounts.soak_seconds, *programs)
    slower = found["second_half_us"] / found["first_half_us"]
    text = (
        f"{amounts.soak_seconds} s of mixed use by 4 threads on 4 GPUs: "
        f"{found['loads']:.0f} loads, {found['executes']:.0f} executes, "
        f"{found['wrong_outputs']:.0f} wrong, {_more(found)}, "
        f"second half {slower:.2f} times as slow as the first"
    )
    flat = found["host_growth"] <= _MIB and found["device_growth"] == 0 and found["engines"] == 0
    fine = flat and found["wrong_outputs"] == 0 and found["executes"] > 0 and slower <= _SLOWER
    return [Part("R8", fine, text)]
