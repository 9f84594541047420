"""Questions 1 and 2: do engines that were built without a GPU, and networks, equal eager on one?"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.version import Version

from tests.support.gpu.kit import MODELS, NETWORKS, Model, compare, read_kit, read_output

ENGINES = ["line", "deep", "pair", "dynamic", "cut"]
CASES = [*(("models", name) for name in MODELS), *(("engines", name) for name in ENGINES)]

NO_MODELS = "the library runs described engines only"

FROM_PYTHON = """
import sys, torch, trt_et.runtime
trt_et.runtime.load()
from executorch.runtime import Runtime
for program, arguments, outputs in torch.load(sys.argv[1]):
    method = Runtime.get().load_program(program).load_method("forward")
    for _ in range(3):
        found = method.execute(arguments)
    torch.save([tensor.clone() for tensor in found], outputs)
"""


def models_of(setup, kit: str) -> dict[str, Model]:
    found = read_kit(Path(getattr(setup, kit)), getattr(setup, f"{kit}_builder"))
    return {model.name: model for model in found}


def environment(setup, kit: str, skip) -> dict[str, str]:
    """Return the environment of a program; reference engines use no TensorRT."""
    variables, builder = setup.environment(), getattr(setup, f"{kit}_builder")
    if not getattr(setup, kit):
        skip(NO_MODELS)
    if builder == "reference":
        del variables["TRT_ET_TENSORRT_LIBRARY"]
    elif builder != setup.engines_builder:
        skip(f"{setup.library} is not {builder}'s library")
    return variables


def run_in_executor_runner(
    setup, model: Model, variables, record, folder, *more, timeout=200
) -> None:
    command = [setup.runner, "--model_path", model.program, "--num_executions", 20, *more]
    command += ["--inputs", ",".join(map(str, model.files)), "--output_file", folder / "out"]
    done = setup.run(*command, env=variables, timeout=timeout)
    record({"ok": False, "exit": done.returncode, "stderr": done.stderr[-1500:]})
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-1500:]}"
    outputs = [
        read_output(folder / f"out-{index}.bin", like) for index, like in enumerate(model.expected)
    ]
    facts = compare(outputs, model.expected)
    record(facts)
    assert facts["ok"], facts


@pytest.mark.parametrize(("kit", "name"), CASES)
def test_a_program_equals_eager_in_executor_runner(kit, name, setup, record, skip, tmp_path):
    variables = environment(setup, kit, skip)
    if setup.is_rehearsal and kit == "models" and name not in NETWORKS:
        skip("a rehearsal's kit has the models of the networks only")
    run_in_executor_runner(setup, models_of(setup, kit)[name], variables, record, tmp_path)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_engine_is_built_at_load_and_equals_eager(name, setup, record, skip, tmp_path):
    variables = setup.environment()
    if not setup.models:
        skip(NO_MODELS)
    if setup.is_rehearsal:
        spec = find_spec("onnxruntime")
        if spec is None:
            skip("networks on simulated GPUs need onnxruntime")
        (library,) = Path(spec.origin).parent.glob("capi/libonnxruntime.so.*")
        variables["TRT_ET_ONNXRUNTIME_LIBRARY"] = str(library)
        del variables["TRT_ET_TENSORRT_LIBRARY"]
    (model,) = (m for m in read_kit(Path(setup.models), "onnx") if m.name == name)
    folder = ["--engine_folder", tmp_path / "engines"]
    run_in_executor_runner(setup, model, variables, record, tmp_path, *folder, timeout=400)


@pytest.mark.parametrize("kit", ["models", "engines"])
def test_programs_equal_eager_in_the_stock_runtime(kit, setup, record, skip, tmp_path):
    import torch

    if find_spec("executorch") is None:
        skip("ExecuTorch is not installed")
    if Version(torch.__version__) < Version("2.13"):
        skip("ExecuTorch's bindings need PyTorch 2.13 or newer")

    variables = environment(setup, kit, skip)
    models = models_of(setup, kit).values()
    jobs = [(str(m.program), m.inputs, str(tmp_path / f"{m.name}.outputs")) for m in models]
    torch.save(jobs, tmp_path / "jobs")
    command = [sys.executable, "-c", FROM_PYTHON, tmp_path / "jobs"]
    done = setup.run(*command, env=variables, timeout=400)
    # A crash leaves no outputs of the programs after it.
    facts = {
        model.name: compare(torch.load(path), model.expected) if Path(path).is_file() else None
        for model, (_, _, path) in zip(models, jobs, strict=True)
    }
    record({"exit": done.returncode, "stderr": done.stderr[-1500:], "programs": facts})
    assert done.returncode == 0, done.stderr[-1500:]
    assert all(found is not None and found["ok"] for found in facts.values()), facts
