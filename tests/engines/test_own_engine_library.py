"""An engine library that is not in this package (docs/internals/add-an-engine-library.md)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import torch

import trt_et.runtime
from tests.support.lowering import lower
from tests.support.models import Function
from tests.support.native_environment import ROOT, environment
from trt_et.engine_info import EngineInfo, encode_blob
from trt_et.engines import BuildRequest
from trt_et.errors import BuilderError

OWN = ROOT / "tests/runtime/own_engine_library/provider.c"
MODEL = Function(lambda x: -torch.relu(-x))
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


def run(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [trt_et.runtime.runner_path(), "--model_path=model.pte", "--inputs=x.npy"]
    env = environment(TRT_ET_CUDA="simulated:1", **variables)
    return subprocess.run(
        [*command, "--output_file=out"], cwd=folder, env=env, capture_output=True, text=True
    )


def test_its_engines_run_in_executor_runner_where_its_provider_is(tmp_path):
    includes = [f"-I{ROOT / 'trt_et/runtime' / part}" for part in ("include", "simulation/include")]
    library = tmp_path / "libtrt_et_tensorrt_77.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", *includes, OWN, "-o", library], check=True)
    program = torch.export.export(MODEL, (torch.ones(2, 3),))
    (tmp_path / "model.pte").write_bytes(lower(program, builder=LettersBuilder()))
    x = torch.randn(2, 3)
    np.save(tmp_path / "x.npy", x.numpy())

    done = run(tmp_path)
    assert done.returncode == 1
    assert "letters" in done.stderr

    done = run(tmp_path, TRT_ET_PROVIDER_PATH=str(tmp_path), TRT_ET_TENSORRT_LIBRARY=str(library))
    assert done.returncode == 0, done.stderr
    found = torch.from_numpy(np.fromfile(tmp_path / "out-0.bin", np.float32)).view(2, 3)
    torch.testing.assert_close(found, MODEL(x), rtol=0, atol=0)
