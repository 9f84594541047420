"""Figures of programs that tests/runtime/hard_use runs on simulated GPUs: R3, R4, R8 and R9."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.native_environment import environment, run
from tests.support.reliability.figures import Amounts, Part

_CRASH: Final = 100  # And above: a signal, as in flips.cpp.
_SEED: Final = 5
_MIB: Final = 1 << 20
_SLOWER: Final = 1.5


def export_programs(folder: Path) -> dict[str, Path]:
    """Export ``mlp`` and ``two`` (on two GPUs) with reference engines, ``rtx`` and ``fake``."""
    import torch

    from tests.support.fake_tensorrt import FakeBuilder, Line
    from tests.support.native_programs import Mlp, export, two_engines

    torch.manual_seed(0)
    x = (torch.randn(2, 8),)
    split: dict[str, Any] = {
        "excluded_ops": (torch.ops.aten.sinh,),
        "device": lambda partition: f"cuda:{partition.index}",
    }
    return {
        "mlp": export(folder, "mlp", Mlp(), x).path,
        "two": export(folder, "two", two_engines(), x, **split).path,
        "rtx": export(folder, "rtx", Mlp(), x, builder="tensorrt_rtx").path,
        "fake": export(folder, "fake", Line(), x, builder=FakeBuilder()).path,
    }


def span_of_blob(program: bytes) -> tuple[int, int]:
    """Return the first and the last offset of the first engine's blob in a program."""
    from trt_et.inspection import inspect_program

    blob = bytes(inspect_program(program)[0].delegates[0].blob)
    begin = program.index(blob)
    return begin, begin + len(blob)


@dataclass(frozen=True)
class HardUse:
    """The program of tests/runtime/hard_use, and one method for each figure."""

    binary: Path
    plugin: Path  # The plugin's library.
    fakes: Path  # The folder of the fakes of TensorRT.
    folder: Path  # For files in between.
    programs: dict[str, Path]  # From export_programs.
    amounts: Amounts

    def flips_in_blobs(self) -> list[Part]:
        """R3: flip one bit in the blob; ``rtx`` has a real engine of TensorRT-RTX.

        The fakes of TensorRT count their calls: an intact blob makes some, a damaged one none.
        """
        cases = missed = 0
        for name, library in (("fake", "libfake_nvinfer.so"), ("rtx", "libfake_tensorrt_rtx.so")):
            begin, end = span_of_blob(self.programs[name].read_bytes())
            chance = random.Random(_SEED)
            flips = [
                f"flip {chance.randrange(begin, end)} {chance.randrange(8)}\n"
                for _ in range(self.amounts.flips_in_blob)
            ]
            file = self.folder / f"{name}.cases"
            file.write_text("".join(flips))
            found = self._run("blob", self.programs[name], file, library=library)
            if not found["intact_library_calls"]:
                text = f"the intact engine of '{name}' does not reach its library"
                return [Part("R3", False, text)]
            cases += int(found["cases"])
            missed += int(found["cases"] - found["refused"] + found["library_calls"])
            missed += int(found["without_reason"])
        text = f"{cases} flips in engine blobs, {missed} reached the library"
        return [Part("R3", missed == 0, text)]

    def flips_elsewhere(self) -> list[Part]:
        """R4: do the same damage with our delegate and with one that does nothing."""
        program = self.programs["mlp"]
        cases = _damage(program.read_bytes(), self.amounts.flips_elsewhere)
        file, results = self.folder / "elsewhere.cases", self.folder / "elsewhere.results"
        file.write_text("\n".join(cases) + "\n")
        outcomes = []
        for plugin in (f"noop:{self.plugin}", str(self.plugin)):
            self._run("flips", program, file, results, plugin=plugin)
            outcomes.append(results.read_bytes())
        stock, ours = (sum(one >= _CRASH for one in found) for found in outcomes)
        triples = zip(cases, *outcomes, strict=True)
        own = [case for case, theirs, found in triples if found >= _CRASH > theirs]
        kinds = Counter(outcomes[1])
        text = (
            f"{len(cases)} damaged files: {ours} crashes, {stock} with a no-op delegate; "
            f"{kinds[0]} right, {kinds[1] + kinds[2]} refused, {kinds[3]} ran with other outputs"
        )
        if own:
            text += f"; only ours: {', '.join(own[:5])}"
        return [Part("R4", ours <= stock and not own, text)]

    def cycles(self) -> list[Part]:
        found = self._run("cycles", self.programs["two"], self.amounts.cycles)
        text = f"{self.amounts.cycles} loads and unloads: {_growth(found)}"
        return [Part("R8", _is_flat(found) and found["engines"] == 0, text)]

    def executes(self) -> list[Part]:
        found = self._run("executes", self.programs["fake"], self.amounts.executes)
        text = f"{self.amounts.executes} executes of a program: {_growth(found)}"
        fine = _is_flat(found) and found["device_mallocs"] == 0 and found["same_outputs"] == 1
        return [Part("R9", fine, text)]

    def soak(self) -> list[Part]:
        """R8 again: four threads load, run and unload for a long time.

        The time of a run is the processor's, so that other programs on the machine do not count.
        """
        programs = [self.programs[name] for name in ("mlp", "two", "fake")]
        found = self._run("soak", self.amounts.soak_seconds, *programs)
        slower = found["second_half_us"] / found["first_half_us"]
        text = (
            f"{self.amounts.soak_seconds} s of mixed use by 4 threads on 4 GPUs: "
            f"{found['loads']:.0f} loads, {found['executes']:.0f} executes, "
            f"{found['wrong_outputs']:.0f} wrong, {_growth(found)}, "
            f"second half {slower:.2f} times as slow as the first"
        )
        fine = found["wrong_outputs"] == found["engines"] == 0 < found["executes"]
        return [Part("R8", _is_flat(found) and fine and slower <= _SLOWER, text)]

    def _run(
        self, *words: object, plugin: str = "", library: str = "libfake_nvinfer.so"
    ) -> dict[str, float]:
        """Run a command and return the numbers that it printed."""
        env = environment(
            TRT_ET_CUDA="simulated:4",
            TRT_ET_TENSORRT_LIBRARY=str(self.fakes / library),
            TRT_ET_RUNTIME_CACHE="off",
            OMP_NUM_THREADS="1",
        )
        done = run(self.binary, plugin or self.plugin, *words, env=env, timeout=None)
        if done.returncode != 0:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
        return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


def _damage(program: bytes, count: int) -> list[str]:
    """Return flips outside of the blob, truncations, and pieces that change places."""
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


def _growth(found: dict[str, float]) -> str:
    host, device = found["host_growth"], found["device_growth"]
    return f"{host:.0f} bytes more on the host, {device:.0f} on GPUs"


def _is_flat(found: dict[str, float]) -> bool:
    return found["host_growth"] <= _MIB and found["device_growth"] == 0
