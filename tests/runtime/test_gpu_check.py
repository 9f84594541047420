"""tests/gpu and scripts/gpu_check (docs/gpu.md), rehearsed on simulated GPUs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import trt_et.runtime
from tests.support.gpu.described_engines import DescribedEngines
from tests.support.gpu.kit import NETWORKS, compare
from tests.support.gpu.make_kit import export_model, make_engines, make_models, make_operators
from tests.support.gpu.operators import eager_outputs, make_operator, other_inputs
from tests.support.native_environment import ROOT, environment, run
from trt_et import TensorRTPartitioner

OPERATORS = ("lstm.float32", "geglu.float32", "gt_scalar.float16")
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
    ("dtype", "wrong"), [(torch.float32, 4e-3), (torch.float16, 6e-3), (torch.int64, 1.0)]
)
def test_each_output_is_held_to_a_share_of_its_own_norm(dtype, wrong):
    like = [torch.full((64,), 1000.0), torch.ones(64, dtype=dtype)]
    assert compare([x.clone() for x in like], like)["ok"]
    assert compare([like[0], (like[1] * (1 + wrong / 3)).to(dtype)], like)["ok"]
    found = compare([like[0], (like[1] + wrong).to(dtype)], like)
    assert not found["ok"]
    assert found["relative"] == pytest.approx(wrong, rel=0.1)


def test_an_output_that_was_never_written_is_no_equal_one():
    like = torch.ones(64)
    never_written = torch.frombuffer(bytearray(b"\xff" * 256), dtype=torch.float32)
    assert not compare([never_written], [like])["ok"]


def test_a_network_that_is_made_again_has_the_same_weights_and_other_inputs():
    for name in ("geglu.float16", "addmm_relu_times.float32", "any_batch_softmax.float16"):
        first, second = make_operator(name), make_operator(name)
        same = zip(eager_outputs(first), eager_outputs(second), strict=True)
        assert all(torch.equal(*pair) for pair in same)
        other = other_inputs(name)
        assert [x.shape for x in other] == [x.shape for x in first.inputs]
        assert not any(map(torch.equal, other, first.inputs))


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0


def test_a_dynamic_program_is_timed_with_the_sizes_of_its_inputs(gpu_probe, tmp_path):
    program, x = tmp_path / "doubled.pte", torch.randn(2, 8)
    shapes = ({0: torch.export.Dim("batch", max=64)},)
    parts = [TensorRTPartitioner(builder="reference")]
    export_model(Doubled(), (x,), parts, program, dynamic_shapes=shapes, where="on_device")
    (tmp_path / "x.bin").write_bytes(x.numpy().tobytes())
    command = [gpu_probe, "times", program, 3, tmp_path / "out"]
    variables = environment(TRT_ET_CUDA="simulated:1")
    done = run(*command, f"{tmp_path}/x.bin:2x8", env=variables)
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == ["load_us", "bytes"] + [
        f"{time}_us_{share}" for time in ("queued", "done") for share in ("p50", "p99")
    ]
    found = torch.frombuffer(bytearray((tmp_path / "out-0.bin").read_bytes()), dtype=x.dtype)
    assert torch.equal(found.view(2, 8), 2 * x)
    done = run(*command, f"{tmp_path}/x.bin:4x8", env=variables)
    assert done.returncode == 1
    assert "input 0 has 64 bytes; its sizes need 128" in done.stderr


@pytest.mark.long
def test_times_are_measured_and_outputs_compared_on_simulated_gpus(kit, tmp_path):
    only = ("--only", "lstm_gru", "--batches", "1")
    command = (sys.executable, "-m", "benchmarks.gpu", "export", kit / "times", *only)
    done = run(*command, "--builder", "reference", env=environment(), folder=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    done = check("--kit", kit, "--output", tmp_path, "--rehearse", "--only", "carried: times")
    assert done.returncode == 0, done.stdout + (tmp_path / "gpu_check.log").read_text()
    found = json.loads((tmp_path / "times.json").read_text())
    case = found["cases"]["lstm_gru.1"]
    assert [(each["shape"], each["dtype"]) for each in case["inputs"]] == [([1, 16, 64], "float16")]
    assert case["weights_sha256"] == case["program"]["weights_sha256"]
    assert list(case["ways"]) == ["ours", "ours_without_graphs", "eager", "eager_graph"]
    for way in case["ways"].values():
        assert [run["done_us_p99"] >= run["done_us_p50"] > 0 for run in way["runs"]] == [True] * 2
        assert way["from_eager_float32"] < 5e-3
    assert case["ways"]["eager"]["from_eager_float16"] == 0
    assert len(found["clocks"]) == 2 * 4


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
