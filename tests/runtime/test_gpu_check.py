"""tests/gpu and scripts/gpu_check (docs/gpu.md), rehearsed on simulated GPUs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import trt_et.runtime
from tests.support.gpu.described_engines import DescribedEngines
from tests.support.gpu.kit import NETWORKS
from tests.support.gpu.make_kit import make_engines, make_models, make_operators
from tests.support.native_environment import ROOT, environment, run

OPERATORS = ("lstm.float32", "linear_relu_scale.float32", "gt_scalar.float16")
CHECK = ROOT / "scripts" / "gpu_check"


@pytest.fixture(scope="module")
def kit(tmp_path_factory, fakes, gpu_probe):
    """A kit with reference engines and engines of the fake TensorRT-RTX."""
    kit = tmp_path_factory.mktemp("kit")
    site = kit / "site"
    make_models(kit / "models", builders=("onnx", "reference"), names=NETWORKS)
    make_engines(kit / "described", "tensorrt_rtx", DescribedEngines(name="tensorrt_rtx"), depth=5)
    make_operators(kit / "operators", "reference", OPERATORS)
    (site / "trt_et").mkdir(parents=True)
    (site / "trt_et" / "runtime").symlink_to(trt_et.runtime.plugin_path().parents[1])
    for file in (fakes / "libfake_tensorrt_rtx.so", gpu_probe):
        (site / file.name).symlink_to(file)
    return kit


def check(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, CHECK, *arguments)
    return run(*command, env=environment(), folder=ROOT, timeout=1200)


@pytest.mark.long
def test_every_question_is_answered_on_simulated_gpus(kit, tmp_path):
    done = check("--kit", kit, "--output", tmp_path, "--rehearse")
    assert done.returncode == 0, done.stdout + (tmp_path / "gpu_check.log").read_text()
    found = json.loads((tmp_path / "gpu_check.json").read_text())
    steps = {step["name"]: step["status"] for step in found["steps"]}
    assert steps == {
        f"carried: {name}": "ok"
        for name in ("programs", "costs", "callers", "streams", "operators", "sanitizers")
    }
    answers = found["answers"]
    assert len(answers["carried/programs"]) == 12 + 2 + 3
    skipped = [a["why"] for a in answers["carried/programs"].values() if a.get("ok", 0) is None]
    assert skipped == ["a rehearsal's kit has the models of the networks only"] * 4
    assert all(a["ok"] is not False for a in answers["carried/programs"].values() if "ok" in a)
    assert [each["networks"] for each in answers["carried/operators"].values()] == [1, 2]
    assert len(answers["carried/callers"]) == 2 * 6
    assert len(answers["carried/sanitizers"]) == 2 * 4
    assert {name.partition("[")[0] for name in answers["carried/streams"]} == {
        "runs_are_ordered_with_copies_on_the_legacy_stream",
        "a_rule_of_cuda_holds",
        "static_objects_can_free_engines",
        "a_process_has_a_primary_context_on_the_engines_gpu_only",
        "a_program_shared_with_cuda_partitioner_equals_eager",
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--kit", "nowhere"], "nowhere is no kit"),
        (["--kit", "kit", "--rtx", "kit", "kit"], "kit has no NvInfer.h"),
    ],
)
def test_a_missing_file_is_named(tmp_path, arguments, reason):
    (tmp_path / "kit" / "models").mkdir(parents=True)
    (tmp_path / "kit" / "models" / "mlp.pt").touch()
    arguments = [str(tmp_path / name) if name == "kit" else name for name in arguments]
    done = check("--output", tmp_path / "out", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
