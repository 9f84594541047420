"""What is kept ready for a machine with a GPU (docs/gpu.md), rehearsed without one."""

from __future__ import annotations

import json
import os
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
from tests.support.native_environment import ROOT, environment
from trt_et import TensorRTPartitioner
from trt_et.errors import BuilderError

SCRIPTS = ROOT / "scripts" / "gpu"
CHECK = ROOT / "scripts" / "gpu_check"


@pytest.fixture(scope="module")
def check() -> Any:
    """scripts/gpu_check as a module."""
    loader = SourceFileLoader("gpu_check", str(CHECK))
    module = module_from_spec(spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def scripts() -> None:
    sys.path.insert(0, str(SCRIPTS))


def run(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit")
    done = run(sys.executable, SCRIPTS / "make_native_kit.py", folder, "--name=tensorrt", "--fake")
    assert done.returncode == 0, done.stderr
    return folder


def test_described_engines_agree_with_eager_in_executor_runner(kit, fake_tensorrt, tmp_path):
    result = tmp_path / "result.json"
    command = [sys.executable, SCRIPTS / "run_kit.py", kit, result]
    command += ["--runner", "--builder", "tensorrt"]
    done = run(*command, TRT_ET_CUDA="simulated:2", **fake_tensorrt)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert set(found) == {"line", "deep", "pair", "dynamic", "cut"}
    assert all(facts["relative"] < 1e-5 for facts in found.values())


def test_a_call_is_timed_beside_the_bare_api(kit, fake_tensorrt, engine_costs, tmp_path):
    result = tmp_path / "result.json"
    command = [sys.executable, SCRIPTS / "native_costs.py", kit, result, "--tool", engine_costs]
    command += ["--builder", "tensorrt", "--rounds", "3"]
    done = run(*command, TRT_ET_CUDA="simulated:1", **fake_tensorrt)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert set(found) == {"line", "deep", "pair"}
    for facts in found.values():
        assert facts["us_with_graphs"]["bare_graph_queued"] > 0
        assert facts["us_without_graphs"]["delegate_queued"] > 0
        assert facts["ratios"]["P13_over_bare"] > 0
        assert facts["calls_with_io_on_the_gpu"] == {"calls": 3}
    calls = found["pair"]["calls_with_io_on_the_host"]  # Two inputs, two outputs.
    assert calls["copies"] == 4
    assert "allocations" not in calls


def test_runs_are_ordered_with_copies_on_the_legacy_stream(
    kit, fake_tensorrt, engine_costs, tmp_path
):
    result = tmp_path / "result.json"
    command = [sys.executable, SCRIPTS / "stream_order.py", kit, result, "--tool", engine_costs]
    command += ["--builder", "tensorrt", "--rounds", "20"]
    done = run(*command, TRT_ET_CUDA="simulated:1", **fake_tensorrt)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert len(found) == 6
    right = {"ok": True, "runs": 20, "wrong": 0, "wrong_in_threads": 0}
    assert all(facts == right for facts in found.values())


def test_beside_cuda_partitioner_says_what_is_missing(tmp_path):
    result = tmp_path / "result.json"
    done = run(sys.executable, SCRIPTS / "beside_cuda_partitioner.py", result)
    assert done.returncode == 0, done.stderr
    answer = json.loads(result.read_text())
    assert answer["ok"] is None
    assert "finds no GPU" in answer["why"]


def test_what_the_counting_runtime_counts_is_what_the_delegate_calls():
    source = (SCRIPTS / "native" / "counting_cudart.cpp").read_text()
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


def test_the_counting_runtime_counts_and_hands_on(engine_costs, tmp_path):
    fake = tmp_path / "libcudart.so"
    source = ROOT / "tests/support/fake_cuda.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", fake, source], check=True, timeout=600)
    library = engine_costs.with_name("libcounting_cudart.so")
    done = run(sys.executable, "-c", COUNTED, library, TRT_ET_COUNTED_CUDART=str(fake))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "0", "1"]


def test_methods_of_one_program_share_its_engine(kit, fake_tensorrt):
    command = [sys.executable, SCRIPTS / "memory.py", "--of", kit / "line.tensorrt.pte"]
    done = run(*command, TRT_ET_CUDA="simulated:1", **fake_tensorrt)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    weights = 1024  # Of such an engine, see described_engines.py.
    assert found["methods_1"] > weights
    assert found["methods_4"] - weights == 4 * (found["methods_1"] - weights)


class Scaled(torch.nn.Linear):
    """A sum whose second term has a factor, which descriptions do not say."""

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
    ids=["a layer that it has not", "half precision", "a scaled sum"],
)
def test_what_no_description_holds_is_refused(scripts, model):
    from described_engines import DescribedEngines
    from executorch.exir import to_edge_transform_and_lower

    dtype = next(model.parameters()).dtype
    program = torch.export.export(model.eval(), (torch.ones(2, 4, dtype=dtype),))
    with pytest.raises(BuilderError, match=r"tanh|float16|alpha"):
        to_edge_transform_and_lower(
            program, partitioner=[TensorRTPartitioner(builder=DescribedEngines())]
        )


def test_a_step_that_hangs_is_ended_with_all_that_it_started(check, tmp_path):
    pid = tmp_path / "pid"
    hangs = f"sleep 60 & echo $! > {pid}; echo started; wait"
    started = time.monotonic()
    status, said = check._output(check.Step("hangs", ["sh", "-c", hangs], limit=2))
    assert (status, said) == ("over 2 s", "started\n")
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    # Gone, or a zombie that nobody has waited for yet; on a busy machine not at once.
    while state.exists() and state.read_text().split()[2] != "Z":
        assert time.monotonic() - started < 30
        time.sleep(0.05)


def test_steps_that_fail_do_not_stop_the_others(tmp_path):
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "kit.json").write_text('{"absent": {"inputs": [], "outputs": []}}')
    command = [sys.executable, CHECK, "--kit", kit, "--output", tmp_path]
    done = run(*command, "--rehearse", "--only", "question 2")
    assert done.returncode == 1, done.stderr
    steps = {
        step["name"]: step
        for step in json.loads((tmp_path / "gpu_check.json").read_text())["steps"]
    }
    assert steps["question 2: the same in executor_runner"]["status"] == "exit 1"
    skipped = steps["question 2: tensorrt engines built here, in Python"]
    assert skipped["status"] == "not run"
    assert "kit.json" in skipped["tail"]


def test_what_came_along_runs_where_python_has_no_executorch(scripts, fakes, tmp_path):
    """What a first call can carry answers by itself: nothing is built, and no Python came."""
    from kit_writer import export_model, write_kit, write_model

    kit, native = tmp_path / "kit", tmp_path / "kit" / "native"
    maker = [sys.executable, SCRIPTS / "make_native_kit.py", kit / "rehearsal"]
    done = run(*maker, "--name=tensorrt_rtx", "--fake")
    assert done.returncode == 0, done.stderr
    model, inputs = torch.nn.Linear(4, 4), (torch.ones(2, 4),)
    partitioner = TensorRTPartitioner(builder="reference")
    export_model(model, inputs, partitioner, kit / "one.reference.pte")
    write_kit(kit, {"one": write_model(kit, "one", model, inputs)})
    (native / "trt_et").mkdir(parents=True)
    (native / "trt_et" / "runtime").symlink_to(trt_et.runtime.plugin_path().parents[1])
    fake = "libfake_tensorrt_rtx.so"
    (native / fake).symlink_to(fakes / fake)

    command = [sys.executable, CHECK, "--kit", kit, "--output", tmp_path, "--rehearse"]
    run(*command, "--python", tmp_path / "python3", "--only", "executor_runner")
    status = {
        step["name"]: step["status"]
        for step in json.loads((tmp_path / "gpu_check.json").read_text())["steps"]
    }
    assert status == {
        "questions 1 and 2: the kit's programs in the executor_runner that came along": "ok",
        "question 2: tensorrt_rtx engines that came along, in executor_runner": "ok",
        "question 2: the same in executor_runner": "not run",
        "question 2: tensorrt engines built here, in executor_runner": "not run",
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--kit", "nowhere"], "nowhere is no kit"),
        (["--kit", "kit", "--rtx", "kit", "kit"], "kit has no NvInfer.h"),
    ],
)
def test_what_is_missing_is_named(tmp_path, arguments, reason):
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "kit.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, str(CHECK), "--output", "out", *arguments],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 2
    assert reason in done.stderr
