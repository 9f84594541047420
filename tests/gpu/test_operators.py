"""Question 1, for every operator: do their engines equal eager?"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock

import pytest

from tests.support.gpu.kit import compare, read_output
from tests.support.gpu.operators import eager_outputs, make_operator, other_inputs

SEEDED = Lock()  # The networks take the process's random numbers.
AT_ONCE = 12  # Processes: starting CUDA takes longer than the runs.


def run(setup, program: Path, folder: Path) -> dict[str, object]:
    """Compare a program with eager, with two sets of inputs; whatever fails is an answer, too.

    One process runs both, and fills the outputs with ones before each run.
    """
    name = program.name.removesuffix(f".{setup.operators_builder}.pte")
    try:
        with SEEDED:
            model = make_operator(name)
            other = replace(model, inputs=other_inputs(name))
        sets = (model, other)
        command: list[object] = [setup.probe, "outputs", program, folder / name]
        for number, each in enumerate(sets):
            for index, tensor in enumerate(each.inputs):
                file = folder / f"{name}.{number}.in{index}.bin"
                file.write_bytes(tensor.contiguous().numpy().tobytes())
                command.append(f"{file}:{'x'.join(map(str, tensor.shape))}")
        variables = setup.environment()
        if setup.operators_builder == "reference":
            del variables["TRT_ET_TENSORRT_LIBRARY"]
        done = setup.run(*command, env=variables, timeout=100)
        if done.returncode:
            return {"ok": False, "exit": done.returncode, "stderr": done.stderr[-300:]}
        facts = []
        for number, each in enumerate(sets):
            expected = eager_outputs(each)
            files = [folder / f"{name}-{number}-{i}.bin" for i in range(len(expected))]
            found = [read_output(file, x) for file, x in zip(files, expected, strict=True)]
            facts.append(compare(found, expected))
        return {"ok": all(fact["ok"] for fact in facts), "of_inputs": facts}
    except Exception as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}"[-300:]}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_operators_equal_eager(dtype, setup, record, skip, tmp_path):
    if not setup.operators:
        skip("the library runs described engines only")
    programs = sorted(Path(setup.operators).glob(f"*.{dtype}.{setup.operators_builder}.pte"))
    assert programs
    left_out = {p.stem: p.read_text() for p in Path(setup.operators).glob(f"*.{dtype}.left_out")}
    wrong: dict[str, object] = {}
    largest: dict[str, float] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        facts = pool.map(lambda program: run(setup, program, tmp_path), programs)
        for number, (program, fact) in enumerate(zip(programs, facts, strict=True), 1):
            if not fact["ok"]:
                wrong[program.name] = fact
            for each in fact.get("of_inputs", ()):
                largest[program.name] = max(largest.get(program.name, 0), each.get("relative", 0))
            # Each time: the machine's time may end before the last one.
            counts = {"networks": number, "of": len(programs), "left_out": left_out}
            counts["largest"] = largest
            record({"ok": not wrong, **counts, "wrong": wrong})
    assert not wrong, re.sub(r"\s+", " ", str(wrong))
