"""Whether a program that ExecuTorch's CudaPartitioner shares with us computes what eager does.

python scripts/gpu/beside_cuda_partitioner.py RESULT.json --builder NAME

Our engines stand before and behind a delegate of ExecuTorch's CUDA backend. That needs a GPU,
PyTorch for CUDA with Triton, and an ExecuTorch built with its CUDA backend; what is missing is
written in place of an answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime

import trt_et.runtime
from trt_et import TensorRTPartitioner
from trt_et.inspection import inspect_file


class Three(torch.nn.Module):
    """Ours, theirs, ours."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(256, 256)
        self.second = torch.nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [64, 256] to the same."""
        result: torch.Tensor = self.second(torch.cumsum(self.first(x).relu(), 1) / 256)
        return result


def main() -> int:
    """Write how many results were wrong; 0 if none, or if the backend is not there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--builder", default="auto", help="whose engines")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    lacks = _lacks()
    answer = {"ok": None, "why": lacks} if lacks else _answer(options.builder, options.rounds)
    options.result.write_text(json.dumps(answer, indent=2) + "\n")
    print(json.dumps(answer, indent=2))
    return 1 if answer["ok"] is False else 0


def _lacks() -> str:
    """What keeps such a program from being built and run here; empty if nothing does."""
    if not torch.cuda.is_available():
        return "this PyTorch finds no GPU (torch.cuda.is_available() is false)"
    for module in ("triton", "executorch.backends.cuda.cuda_partitioner"):
        if find_spec(module) is None:
            return f"the module {module} is not installed"
    if not Runtime.get().backend_registry.is_available("CudaBackend"):
        return "the installed ExecuTorch was built without its CUDA backend"
    return ""


def _answer(builder: str, rounds: int) -> dict[str, Any]:
    from executorch.backends.cuda.cuda_backend import CudaBackend
    from executorch.backends.cuda.cuda_partitioner import CudaPartitioner

    torch.manual_seed(0)
    model = Three().eval()
    ours = TensorRTPartitioner(builder=builder, excluded_ops=["aten.cumsum"])
    theirs = CudaPartitioner([CudaBackend.generate_method_name_compile_spec("forward")])
    program = torch.export.export(model, (torch.randn(64, 256),))
    with TemporaryDirectory() as folder, torch.no_grad():
        lowered = to_edge_transform_and_lower(program, partitioner=[ours, theirs]).to_executorch()
        path = Path(folder) / "three.pte"
        with path.open("wb") as file:
            lowered.write_to_file(file)
        lowered.write_tensor_data_to_file(folder)
        data = next(Path(folder).glob("*.ptd"), None)
        (method,) = inspect_file(path).methods
        backends = [delegate.backend_id for delegate in method.delegates]
        trt_et.runtime.load()
        loaded = Runtime.get().load_program(path, data_path=data).load_method("forward")
        wrong = 0
        for _ in range(rounds):
            x = torch.randn(64, 256)
            (found,) = loaded.execute([x])
            wrong += not torch.allclose(found, model(x), atol=1e-2, rtol=1e-2)
    both = {"TensorRTBackend", "CudaBackend"} <= set(backends)
    return {"ok": both and not wrong, "delegates": backends, "runs": rounds, "wrong": wrong}


if __name__ == "__main__":
    sys.exit(main())
