"""tests/gpu and scripts/gpu_check (docs/gpu.md), rehearsed on simulated GPUs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
import torch

import trt_et.runtime
from tests.support.gpu.described_engines import DescribedEngines
from tests.support.gpu.kit_writer import export_model, write_kit, write_model
from tests.support.gpu.make_kit import make_engines, make_models
from tests.support.native_environment import ROOT, environment
from trt_et import TensorRTPartitioner
from trt_et.errors import BuilderError

CHECK = ROOT / "scripts" / "gpu_check"


def run(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        env=environment(**variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


@pytest.fixture(scope="module")
def kit(tmp_path_factory, fakes, gpu_probe) -> Path:
    """The first part of a kit, with reference engines and engines of the fake TensorRT-RTX."""
    kit = tmp_path_factory.mktemp("kit")
    native = kit / "native"
    make_models(kit / "models")
    make_engines(kit / "rehearsal", "tensorrt_rtx", DescribedEngines(name="tensorrt_rtx"))
    (native / "trt_et").mkdir(parents=True)
    (native / "trt_et" / "runtime").symlink_to(trt_et.runtime.plugin_path().parents[1])
    for file in (fakes / "libfake_tensorrt_rtx.so", gpu_probe):
        (native / file.name).symlink_to(file)
    counting = "libcounting_cudart.so"
    (native / counting).symlink_to(gpu_probe.with_name(counting))
    return kit


def test_every_question_is_answered_on_simulated_gpus(kit, tmp_path):
    command = [sys.executable, CHECK, "--kit", kit, "--output", tmp_path, "--rehearse"]
    done = run(*command, "--python", tmp_path / "absent", "--only", "carried: ")
    assert done.returncode == 0, done.stdout + (tmp_path / "gpu_check.log").read_text()
    found = json.loads((tmp_path / "gpu_check.json").read_text())
    status = {step["name"]: step["status"] for step in found["steps"]}
    assert status == {
        f"carried: {name}": "ok"
        for name in (*("programs", "costs", "streams", "peers", "sanitizers"),)
    }
    answers = found["answers"]
    programs = answers["carried/programs"]
    assert len(programs) == 12 + 2
    costs = answers["carried/costs"]
    assert costs["a_steady_call_makes_few_cuda_calls[pair]"]["io_on_the_gpu"] == {"calls": 3}
    assert costs["a_steady_call_makes_few_cuda_calls[pair]"]["io_on_the_host"]["copies"] == 4
    streams = answers["carried/streams"]
    assert {name.partition("[")[0] for name in streams} == {
        "runs_are_ordered_with_copies_on_the_legacy_stream",
        "a_context_can_be_rebound_without_a_wait_on_one_stream",
        "an_event_wait_on_the_legacy_stream_is_a_barrier_for_blocking_streams",
        "static_objects_can_free_engines",
        "a_process_has_a_primary_context_on_the_engines_gpu_only",
        "a_program_shared_with_cuda_partitioner_equals_eager",
    }


def test_the_counting_runtime_counts_the_functions_that_the_delegate_calls():
    source = (ROOT / "tests/gpu/native/counting_cudart.cpp").read_text()
    counted = re.findall(r"X\((cuda\w+)\)", source)
    delegate = (ROOT / "trt_et" / "runtime" / "src" / "cuda" / "real.cpp").read_text()
    assert sorted(counted) == sorted(re.findall(r"FIND\(runtime, (cuda\w+)\)", delegate))


COUNTED = """
import ctypes, sys
counting = ctypes.CDLL(sys.argv[1])
counting.counted_calls.restype = ctypes.c_uint64
memory, count = ctypes.c_void_p(), ctypes.c_int()
assert counting.cudaGetDeviceCount(ctypes.byref(count)) == 0 and count.value == 2
for _ in range(3):
    assert counting.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(64)) == 0 and memory.value
assert counting.cudaGraphLaunch(None, None) == 801
for name in (b"cudaMalloc", b"cudaFree", b"cudaGetDeviceCount"):
    print(counting.counted_calls(name))
"""


def test_the_counting_runtime_counts_and_forwards(gpu_probe, tmp_path):
    fake = tmp_path / "libcudart.so"
    source = ROOT / "tests/support/fake_cuda.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", fake, source], check=True, timeout=600)
    library = gpu_probe.with_name("libcounting_cudart.so")
    done = run(sys.executable, "-c", COUNTED, library, TRT_ET_COUNTED_CUDART=str(fake))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "0", "1"]


class Scaled(torch.nn.Linear):
    """A sum whose second term has a factor, which no description can express."""

    def __init__(self) -> None:
        super().__init__(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(super().forward(x), x, alpha=2)


@pytest.mark.parametrize(
    "model",
    [
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()),
        torch.nn.Linear(4, 4).half(),
        Scaled(),
    ],
    ids=["an unknown layer", "half precision", "a scaled sum"],
)
def test_a_model_without_a_description_is_refused(model):
    from executorch.exir import to_edge_transform_and_lower

    dtype = next(model.parameters()).dtype
    program = torch.export.export(model.eval(), (torch.ones(2, 4, dtype=dtype),))
    with pytest.raises(BuilderError, match=r"tanh|float16|alpha"):
        to_edge_transform_and_lower(
            program, partitioner=[TensorRTPartitioner(builder=DescribedEngines())]
        )


@pytest.fixture(scope="module")
def check() -> Any:
    """scripts/gpu_check as a module."""
    loader = SourceFileLoader("gpu_check", str(CHECK))
    module = module_from_spec(spec_from_loader("gpu_check", loader))
    sys.modules["gpu_check"] = module
    loader.exec_module(module)
    return module


def test_a_step_that_hangs_is_killed_with_its_processes(check, tmp_path):
    pid = tmp_path / "pid"
    hangs = f"sleep 60 & echo $! > {pid}; echo started; wait"
    started = time.monotonic()
    status, said = check.output(check.Step("hangs", ["sh", "-c", hangs], limit=2))
    assert (status, said) == ("over 2 s", "started\n")
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    # Gone, or a zombie that nobody has waited for yet; on a busy machine not at once.
    while state.exists() and state.read_text().split()[2] != "Z":
        assert time.monotonic() - started < 30
        time.sleep(0.05)


def test_a_step_that_fails_does_not_stop_the_others(tmp_path):
    model, inputs = torch.nn.Linear(4, 4), (torch.ones(2, 4),)
    kit = tmp_path / "kit"
    for folder in ("models", "rehearsal"):
        (kit / folder).mkdir(parents=True)
        write_kit(kit / folder, {"one": write_model(kit / folder, "one", model, inputs)})
    export_model(
        model, inputs, TensorRTPartitioner(builder="reference"), kit / "models/one.reference.pte"
    )
    command = [sys.executable, CHECK, "--kit", kit, "--output", tmp_path / "out", "--rehearse"]
    done = run(*command, "--python", tmp_path / "absent", "--only", "programs", PYTEST_ADDOPTS="-x")
    assert done.returncode == 1, done.stderr
    steps = json.loads((tmp_path / "out" / "gpu_check.json").read_text())["steps"]
    assert [(step["name"], step["status"]) for step in steps] == [
        ("carried: programs", "exit 1"),
        ("carried, with ExecuTorch: programs", "not run"),
    ]
    assert "absent" in steps[1]["tail"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--kit", "nowhere"], "nowhere is no kit"),
        (["--kit", "kit", "--rtx", "kit", "kit"], "kit has no NvInfer.h"),
    ],
)
def test_a_missing_file_is_named(tmp_path, arguments, reason):
    (tmp_path / "kit" / "models").mkdir(parents=True)
    (tmp_path / "kit" / "models" / "kit.json").write_text("{}")
    command = [sys.executable, str(CHECK), "--output", "out", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert reason in done.stderr
