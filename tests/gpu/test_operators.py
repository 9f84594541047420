"""Question 1, for every operator: do their engines equal eager?"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.utils._pytree import tree_flatten

from tests.support.gpu.kit import Model, compare, read_kit, read_output

# TensorRT may sum in another order, and in float32 with TF32: 10 bits of mantissa, as float16 has.
TOLERANCE = 2e-2
AT_ONCE = 12  # Processes: starting CUDA takes longer than the runs.


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_operators_equal_eager(dtype, setup, record, skip, tmp_path):
    if not setup.operators:
        skip("the library runs described engines only")
    kit = read_kit(Path(setup.operators), "tensorrt_rtx")
    models = [model for model in kit if dtype in model.name and model.program.is_file()]

    def run(model: Model) -> dict[str, object]:
        out = tmp_path / model.name
        command = [setup.runner, "--model_path", model.program, "--num_executions", 3]
        command += ["--inputs", ",".join(map(str, model.files)), "--output_file", out]
        done = setup.run(*command, timeout=100)
        if done.returncode:
            return {"ok": False, "exit": done.returncode, "stderr": done.stderr[-300:]}
        expected, _ = tree_flatten(model.expected)
        found = [read_output(Path(f"{out}-{i}.bin"), x) for i, x in enumerate(expected)]
        return compare(found, expected, TOLERANCE)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        facts = dict(zip((m.name for m in models), pool.map(run, models), strict=True))
    wrong = {name: fact for name, fact in facts.items() if not fact["ok"]}
    record({"networks": len(facts), "wrong": wrong})
    assert facts
    assert not wrong, re.sub(r"\s+", " ", str(wrong))
