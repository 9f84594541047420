"""An engine library that is not in this package (docs/internals/add-an-engine-library.md)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import trt_et.runtime
from tests.support.lowering import lower
from tests.support.native_environment import ROOT, environment
from trt_et.engine_info import EngineInfo, encode_blob
from trt_et.engines import BuildRequest
from trt_et.errors import BuilderError

OWN = ROOT / "tests/runtime/own_engine_library/provider.c"
LETTERS = {"aten::relu": b"r", "aten::neg": b"n"}


class LettersBuilder:
    """A letter for each operator."""

    name = "letters"

    def build(self, request: BuildRequest) -> bytes:
        graph = request.lowered.program.graph
        names = [node.target._schema.name for node in graph.nodes if node.op == "call_function"]
        if unknown := [name for name in names if name not in LETTERS]:
            raise BuilderError(f"letters has no {unknown[0]}")
        info = EngineInfo(
            bindings=request.lowered.bindings,
            device_id=request.device_id,
            builder=self.name,
            library_version="77.1",
            hardware_compatible=True,
        )
        return encode_blob(b"".join(LETTERS[name] for name in names), info)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -torch.relu(-x)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The provider, and a program whose one engine is for it."""
    folder = tmp_path_factory.mktemp("letters")
    includes = [f"-I{ROOT / 'trt_et/runtime' / part}" for part in ("include", "simulation/include")]
    library = folder / "libtrt_et_tensorrt_77.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", *includes, OWN, "-o", library], check=True)
    program = torch.export.export(Model(), (torch.ones(2, 3),))
    (folder / "model.pte").write_bytes(lower(program, builder=LettersBuilder()))
    return folder


def run(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [trt_et.runtime.runner_path(), "--model_path=model.pte", "--inputs=x.npy"]
    env = environment(TRT_ET_CUDA="simulated:1", **variables)
    return subprocess.run(
        [*command, "--output_file=out"], cwd=folder, env=env, capture_output=True, text=True
    )


def test_its_engines_run_in_executor_runner(folder):
    x = torch.randn(2, 3)
    np.save(folder / "x.npy", x.numpy())
    library = str(folder / "libtrt_et_tensorrt_77.so")
    done = run(folder, TRT_ET_PROVIDER_PATH=str(folder), TRT_ET_TENSORRT_LIBRARY=library)
    assert done.returncode == 0, done.stderr
    found = torch.from_numpy(np.fromfile(folder / "out-0.bin", np.float32)).view(2, 3)
    torch.testing.assert_close(found, Model()(x), rtol=0, atol=0)


def test_without_its_provider_the_message_names_the_engine(folder):
    np.save(folder / "x.npy", np.ones((2, 3), np.float32))
    done = run(folder)
    assert done.returncode == 1
    assert "letters" in done.stderr
