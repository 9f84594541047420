"""Engines through the Python bindings of TensorRT: a double of them, on a double of CUDA."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.native_environment import ROOT, environment
from tests.support.native_programs import export
from trt_et.engine_info import EngineInfo, encode_blob

SUPPORT = ROOT / "tests/support"
BINDINGS = SUPPORT / "fake_bindings"


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0


@dataclass
class Builder:
    """Engines for the double. One export serves many: blobs of one program are equally long."""

    facts: dict[str, Any] = field(default_factory=dict)
    name: str = "tensorrt_rtx"
    request: Any = None

    def build(self, request: Any) -> bytes:
        self.request = request
        return self.blob(self.facts)

    def blob(self, changes: dict[str, Any]) -> bytes:
        x, y = self.request.lowered.bindings
        facts = {"input": x.name, "output": y.name, "shape": list(x.shape), "factor": 2.0}
        info = EngineInfo(
            bindings=self.request.lowered.bindings,
            device_id=self.request.device_id,
            builder=self.name,
            library_version="1.5.0.114",
        )
        return encode_blob(json.dumps(facts | changes).ljust(300).encode(), info)

    def variant(self, program: Any, name: str, changes: dict[str, Any]) -> Path:
        content, blob = program.path.read_bytes(), self.blob(self.facts)
        assert content.count(blob) == 1
        path: Path = program.path.with_name(f"{name.replace(' ', '_')}.pte")
        path.write_bytes(content.replace(blob, self.blob(changes)))
        return path


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the fake driver: install gcc")
    folder = tmp_path_factory.mktemp("cuda")
    library = folder / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-o", library, SUPPORT / "fake_cuda.c"]
    subprocess.run(command, check=True, timeout=600)
    return folder


def run(folder: Path, jobs: list[dict[str, Any]], *more: str, **variables: str) -> dict[str, Any]:
    torch.save(jobs, folder / "jobs")
    env = environment(**variables)
    env["PYTHONPATH"] = f"{BINDINGS}:{env['PYTHONPATH']}"
    command = [sys.executable, "-m", "tests.support.run_python_provider", "jobs", "results", *more]
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    facts: dict[str, Any] = torch.load(folder / "results")
    return facts | {"stderr": done.stderr}


X = torch.arange(16, dtype=torch.float32).reshape(2, 8)
PROFILES = {"shape": [-1, 8], "profiles": [[[1, 8], [2, 8]], [[3, 8], [6, 8]]]}
# What the double does, and what is said about it: where loading fails, and where a run does.
AT_LOAD = {
    "deserialize": ({"fail": "deserialize"}, "refuses an engine of 1.5.0.114: Magic tag"),
    "count": ({"count": 3}, "engine has 3 inputs and outputs, its blob names 2"),
    "name": ({"input": "other"}, "engine has no input '"),
    "shape": ({"shape": [2, 9]}, "blob and engine disagree on"),
    "dtype": ({"dtype": "HALF"}, "blob and engine disagree on"),
    "fp8": ({"dtype": "FP8"}, "has a dtype that ExecuTorch does not have"),
    "location": ({"location": "HOST"}, "is a shape on the host"),
    "format": ({"format": "CHW4"}, "wants a memory layout that is not linear"),
    "context": ({"fail": "context"}, "TensorRT gives no execution context"),
    "not json": ({"factor": float("nan"), "profiles": 3}, "TypeError: "),
}
AT_RUN = {
    "address": ({"fail": "set_tensor_address"}, "refuses the memory of"),
    "execute": ({"fail": "execute"}, "TensorRT cannot queue the engine: log of execute"),
    "raises": ({"raise": "execute"}, "RuntimeError: from execute"),
    "late": (PROFILES | {"late": True}, "depends on data"),
}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory, cuda: Path) -> dict[str, Any]:
    """All of it in one process on two fake GPUs."""
    folder = tmp_path_factory.mktemp("programs")

    def make(name: str, builder: Builder, **more: Any) -> Any:
        return export(folder, name, Twice(), (X,), builder=builder, **more)

    def job(path: Path, *inputs: torch.Tensor) -> dict[str, Any]:
        return {"program": str(path), "inputs": [[x] for x in inputs]}

    batch = ({0: torch.export.Dim("batch", min=1, max=8)},)
    fixed, dynamic = Builder(), Builder(PROFILES)
    plain, profiles = make("plain", fixed), make("profiles", dynamic, dynamic=batch)
    batches = [X, X.repeat(2, 1), X[:1], X.repeat(4, 1), X]
    jobs = {
        "slow": job(fixed.variant(plain, "slow", {"seconds": 1}), X),
        # Its engine is the first instruction: ExecuTorch itself refuses inputs after that.
        "slow_run": job(make("slow_run", Builder({"run_seconds": 1}), host=True).path, X),
        "plain": job(plain.path, X, X + 1, X),
        "host": job(make("host", Builder(), host=True).path, X, X * 3),
        "profiles": job(profiles.path, *batches),
        "on_1": job(make("on_1", Builder(), device="cuda:1").path, X),
    }
    for name, (change, _) in (AT_LOAD | AT_RUN).items():
        late = name == "late"
        builder, program = (dynamic, profiles) if late else (fixed, plain)
        jobs[name] = job(builder.variant(program, name, change), X, X)
    jobs["again"] = jobs["plain"]
    found = run(
        folder,
        list(jobs.values()),
        "threads",
        LD_LIBRARY_PATH=str(cuda),
        TRT_ET_CUDART_LIBRARY=str(cuda / "libcuda.so.1"),
    )
    return found | {"results": dict(zip(jobs, found["results"], strict=True))}


def check(result: dict[str, Any], *inputs: torch.Tensor) -> None:
    assert "error" not in result, result
    for found, x in zip(result["outputs"], inputs, strict=True):
        torch.testing.assert_close(found, x * 2, rtol=0, atol=0)


def test_engines_run(facts: dict[str, Any]) -> None:
    assert facts["is_fake"]
    check(facts["results"]["plain"], X, X + 1, X)
    check(facts["results"]["host"], X, X * 3)
    check(facts["results"]["on_1"], X)
    check(facts["results"]["again"], X, X + 1, X)


def test_tensorrt_is_imported_when_an_engine_needs_it(facts: dict[str, Any]) -> None:
    assert facts["imported"] == []
    assert facts["runtimes"] == 2  # One a GPU.


def test_the_profile_that_fits_is_chosen(facts: dict[str, Any]) -> None:
    outputs = facts["results"]["profiles"]["outputs"]
    assert "8, 8" in outputs.pop(3)
    check({"outputs": outputs}, X, X.repeat(2, 1), X[:1], X)


@pytest.mark.parametrize("name", AT_LOAD)
def test_what_fails_while_loading_is_said(facts: dict[str, Any], name: str) -> None:
    assert AT_LOAD[name][1] in facts["results"][name]["reason"]


@pytest.mark.parametrize("name", AT_RUN)
def test_what_fails_while_running_is_said(facts: dict[str, Any], name: str) -> None:
    result = facts["results"][name]
    texts = result.get("outputs", [result.get("reason")])
    assert all(AT_RUN[name][1] in text for text in texts), result


def test_a_tensorrt_that_does_not_start_says_why(tmp_path: Path, cuda: Path) -> None:
    program = export(tmp_path, "twice", Twice(), (X,), builder=Builder())
    found = run(
        tmp_path,
        [{"program": str(program.path), "inputs": [[X]]}],
        FAKE_TENSORRT_NO_START="1",
        LD_LIBRARY_PATH=str(cuda),
        TRT_ET_CUDART_LIBRARY=str(cuda / "libcuda.so.1"),
    )
    reason = found["results"][0]["reason"]
    assert "tensorrt_rtx does not start on cuda:0: CUDA initialization failure" in reason


def test_a_second_thread_is_refused(facts: dict[str, Any]) -> None:
    found = facts["threads"]
    check(found["first"], X)
    assert "another thread is using executorch.runtime" in found["meanwhile"]["reason"]
    check(found["after"], X)


def test_a_second_thread_at_the_same_method_is_refused(facts: dict[str, Any]) -> None:
    # Waiting, with the GIL, for the thread that is inside and needs it, would never end.
    found = facts["method"]
    check(found["first"], X)
    assert "another thread is executing this method" in found["meanwhile"]["reason"]
    check(found["after"], X)


def test_the_structures_are_those_of_the_header(tmp_path: Path) -> None:
    from trt_et.runtime import python_provider as provider

    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: install gcc")
    pairs = {
        "trt_et_binding": provider._BindingStruct,
        "trt_et_engine_request": provider._Request,
        "trt_et_engine_provider": provider._Table,
    }
    lines = ['#include "trt_et/engine_provider.h"', "#include <stdio.h>", "int main(void) {"]
    expected = [provider._ABI, provider._MAX_RANK, provider._USER_MEMORY, provider._NO_WAIT]
    names = ["PROVIDER_ABI", "MAX_RANK", "CONTEXT_USER_MEMORY", "PROVIDER_NO_WAIT"]
    lines += [f'printf("%d\\n", (int)TRT_ET_{name});' for name in names]
    for struct, mirror in pairs.items():
        lines.append(f'printf("%d\\n", (int)sizeof({struct}));')
        expected.append(ctypes.sizeof(mirror))
        for name, *_ in mirror._fields_:
            lines.append(f'printf("%d\\n", (int)offsetof({struct}, {name}));')
            expected.append(getattr(mirror, name).offset)
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join([*lines, "return 0;", "}"]))
    include = ROOT / "trt_et/runtime/include"
    subprocess.run([compiler, f"-I{include}", "-o", program, source], check=True, timeout=600)
    done = subprocess.run([program], check=True, capture_output=True, text=True, timeout=600)
    assert list(map(int, done.stdout.split())) == expected


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "no NVIDIA driver (libcuda.so.1 not found)"),
        ({"TRT_ET_CUDA": "simulated"}, "real tensorrt_rtx engine cannot run on simulated GPUs"),
    ],
)
def test_without_driver(tmp_path: Path, variables: dict[str, str], reason: str) -> None:
    program = export(tmp_path, "twice", Twice(), (X,), builder=Builder(), host=True)
    found = run(tmp_path, [{"program": str(program.path), "inputs": [[X]]}], **variables)
    assert reason in found["results"][0]["reason"]
    assert found["runtimes"] == 0
