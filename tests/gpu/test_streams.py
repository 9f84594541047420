"""Question 5 and the rules of CUDA that the delegate relies on: order, contexts, process exit."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.gpu.test_costs import TIMED, program, tensors


@pytest.mark.parametrize("graphs", ["1", "0"], ids=["graphs", "plain"])
@pytest.mark.parametrize("name", TIMED)
def test_runs_are_ordered_with_copies_on_the_legacy_stream(name, graphs, setup, probe, record):
    rounds = 20 if setup.is_rehearsal else 200
    found = probe("order", program(setup, name, "_device"), rounds, TRT_ET_CUDA_GRAPHS=graphs)
    record(found)
    assert found == {"runs": rounds, "wrong": 0, "wrong_in_threads": 0}


@pytest.mark.parametrize("what", ["rebind", "barrier"])
def test_a_rule_of_cuda_holds(what, setup, probe, record):
    """A context may get other addresses on one stream without a wait: ``rebind``.

    A wait of the legacy stream for an event is one of all blocking streams: ``barrier``.
    """
    engine = Path(setup.engines) / "deep.engine"
    rounds = 5 if setup.is_rehearsal else 200
    arguments = [program(setup, "deep", "_device"), engine, setup.library, rounds]
    found = probe(what, *arguments, *tensors(setup, "deep"))
    record(found)
    assert found["wrong"] == 0


def test_static_objects_can_free_engines(setup, probe, record):
    found = probe("static", program(setup, "pair", "_device"))
    record(found)
    assert found == {"left": 1}


def test_a_process_has_a_primary_context_on_the_engines_gpu_only(setup, probe, record):
    found = probe("contexts", program(setup, "pair", "_device"))
    record(found)
    if not setup.is_rehearsal:
        assert found["primary_context_0"] == 1
        assert sum(v for name, v in found.items() if name.startswith("primary")) == 1


def missing_for_cuda_partitioner() -> str:
    """Return why ExecuTorch's CUDA backend cannot run here; empty if it can."""
    import torch

    if not torch.cuda.is_available():
        return "this PyTorch finds no GPU"
    if find_spec("executorch") is None:
        return "the module executorch is not installed"
    from executorch.runtime import Runtime

    if not Runtime.get().backend_registry.is_available("CudaBackend"):
        return "the installed ExecuTorch was built without its CUDA backend"
    if find_spec("triton") is None:
        return "the module triton is not installed"
    return ""


def test_a_program_shared_with_cuda_partitioner_equals_eager(record, skip, tmp_path):
    if reason := missing_for_cuda_partitioner():
        skip(reason)
    import torch
    from executorch.backends.cuda.cuda_backend import CudaBackend
    from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    import trt_et.runtime
    from trt_et import TensorRTPartitioner
    from trt_et.inspection import inspect_file

    class Three(torch.nn.Module):
        """An engine, a delegate of ExecuTorch's CUDA backend, an engine."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.cumsum(self.first(x).relu(), 1) / 256)

    torch.manual_seed(0)
    model = Three().eval()
    ours = TensorRTPartitioner(excluded_ops=["aten.cumsum"])
    theirs = CudaPartitioner([CudaBackend.generate_method_name_compile_spec("forward")])
    exported = torch.export.export(model, (torch.randn(64, 256),))
    with torch.no_grad():
        lowered = to_edge_transform_and_lower(exported, partitioner=[ours, theirs]).to_executorch()
        path = tmp_path / "three.pte"
        with path.open("wb") as file:
            lowered.write_to_file(file)
        lowered.write_tensor_data_to_file(str(tmp_path))
        data = next(tmp_path.glob("*.ptd"), None)
        backends = {delegate.backend_id for delegate in inspect_file(path).methods[0].delegates}
        trt_et.runtime.load()
        loaded = Runtime.get().load_program(path, data_path=data).load_method("forward")
        wrong = 0
        for _ in range(200):
            x = torch.randn(64, 256)
            (found,) = loaded.execute([x])
            wrong += not torch.allclose(found, model(x), atol=1e-2, rtol=1e-2)
    record({"delegates": sorted(backends), "wrong": wrong})
    assert backends == {"TensorRTBackend", "CudaBackend"}
    assert wrong == 0
