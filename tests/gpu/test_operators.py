"""Question 1, for every operator: do their engines equal eager?"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import numpy as np
import pytest

from tests.support.gpu.kit import compare, read_output
from tests.support.gpu.operators import eager_outputs, make_operator

# TensorRT may sum in another order, and in float32 with TF32: 10 bits of mantissa, as float16 has.
TOLERANCE = 2e-2
SEEDED = Lock()  # The networks take the process's random numbers.
AT_ONCE = 12  # Processes: starting CUDA takes longer than the runs.


def run(setup, program: Path, folder: Path) -> dict[str, object]:
    """Compare a program with eager; whatever fails is an answer, too."""
    name = program.name.removesuffix(f".{setup.operators_builder}.pte")
    try:
        with SEEDED:
            model = make_operator(name)
        files = [folder / f"{name}.in{index}.npy" for index in range(len(model.inputs))]
        for file, tensor in zip(files, model.inputs, strict=True):
            np.save(file, tensor.numpy())
        command = [setup.runner, "--model_path", program, "--num_executions", 3]
        command += ["--inputs", ",".join(map(str, files)), "--output_file", folder / name]
        variables = setup.environment()
        if setup.operators_builder == "reference":
            del variables["TRT_ET_TENSORRT_LIBRARY"]
        done = setup.run(*command, env=variables, timeout=100)
        if done.returncode:
            return {"ok": False, "exit": done.returncode, "stderr": done.stderr[-300:]}
        expected = eager_outputs(model)
        found = [read_output(folder / f"{name}-{i}.bin", x) for i, x in enumerate(expected)]
        return compare(found, expected, TOLERANCE)
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
    with ThreadPoolExecutor(AT_ONCE) as pool:
        facts = pool.map(lambda program: run(setup, program, tmp_path), programs)
        for number, (program, fact) in enumerate(zip(programs, facts, strict=True), 1):
            if not fact["ok"]:
                wrong[program.name] = fact
            # Each time: the machine's time may end before the last one.
            counts = {"networks": number, "of": len(programs), "left_out": left_out}
            record({"ok": not wrong, **counts, "wrong": wrong})
    assert not wrong, re.sub(r"\s+", " ", str(wrong))
