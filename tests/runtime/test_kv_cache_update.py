"""A KV cache that an engine writes in place: through the native runtime, call after call.

The engine is the fake's, which demands what TensorRT does: that the new value has the memory of the
old one. What it computes is taken from the partition, as builders recognise it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.passes import MemoryPlanningPass

from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.conversion.operators.caches import update_in_place
from trt_et.engine_info import EngineInfo, encode_blob
from trt_et.engine_program.program import unlift
from trt_et.engines import EngineBuilder

SHAPE = (1, 2, 16, 8)
CALLS = [(torch.tensor([at]), torch.randn(1, 2, 1, 8)) for at in (3, 4, 15, 4, 0, 7)]


class Cached(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(SHAPE))

    def forward(self, position: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(2, position, rows)
        return self.cache * 2


class ReadOnTheCpu(Cached):
    """The new value leaves the engine twice: into the buffer, and to an operator on the CPU."""

    def forward(self, position: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        super().forward(position, rows)
        return torch.sinh(self.cache)


class CacheBuilder(EngineBuilder):
    """Builds an engine of the fake that writes rows into the cache, and may return twice that."""

    name = "tensorrt"

    def build(self, request: Any) -> bytes:
        program = request.program
        module = unlift(program.exported)
        aliases = update_in_place(module, program.aliased_outputs)
        text = "fake\nweights 1024\nscratch 256\n"
        for binding in program.bindings:
            kind = "input" if binding.is_input else "output"
            text += f"{kind} {binding.name} {binding.dtype} {','.join(map(str, binding.shape))}\n"
        (alias,) = aliases
        rows = next(b.name for b in program.inputs if b.dtype == "float32" and b.shape[2] == 1)
        position = next(b.name for b in program.inputs if b.dtype == "int64")
        text += f"alias {alias.output} {alias.input}\n"
        text += f"write {alias.output} {rows} {position}\n"
        for binding in program.outputs:
            if binding.name != alias.output:
                text += f"scale {binding.name} {alias.output} 2\n"
        info = EngineInfo(program.bindings, request.device_id, self.name, "11.7.3", aliases=aliases)
        return encode_blob(text.encode(), info)


def export(
    model: torch.nn.Module, planning: MemoryPlanningPass, builder: Any, *, host: bool = False
) -> bytes:
    specs = [CompileSpec("target_device", b"cpu")] if host else []
    partitioner = TensorRTPartitioner(specs, builder=builder, excluded_ops=[torch.ops.aten.sinh])
    config = ExecutorchBackendConfig(
        memory_planning_pass=planning, enable_non_cpu_memory_planning=not host
    )
    with torch.no_grad():
        exported = torch.export.export(model, CALLS[0])
        manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        return bytes(manager.to_executorch(config).buffer)


@pytest.fixture(scope="module")
def results(tmp_path_factory, stock, fake_tensorrt):
    folder = tmp_path_factory.mktemp("caches")
    ours, stock_planning, builder = TensorRTMemoryPlanningPass, MemoryPlanningPass, CacheBuilder()
    programs = {
        "on the GPU": export(Cached(), ours(), builder),
        "copied": export(Cached(), stock_planning(), builder),
        "on the host": export(Cached(), stock_planning(), builder, host=True),
        "read on the CPU": export(ReadOnTheCpu(), ours(), builder),
        "read on the CPU, copied": export(ReadOnTheCpu(), stock_planning(), builder),
    }
    jobs = []
    for index, pte in enumerate(programs.values()):
        path = folder / f"{index}.pte"
        path.write_bytes(pte)
        jobs.append({"program": str(path), "calls": CALLS})
    facts = stock(*jobs, TRT_ET_CUDA="simulated:2", **fake_tensorrt)
    return dict(zip(programs, facts["results"], strict=True))


def check_calls(result: dict[str, Any], model: torch.nn.Module) -> None:
    assert "error" not in result, result
    for call, (found,) in zip(CALLS, result["every"], strict=True):
        torch.testing.assert_close(found, model(*call))


def test_every_call_sees_the_rows_of_those_before(results):
    for name, result in results.items():
        check_calls(result, ReadOnTheCpu() if "CPU" in name else Cached())


def test_every_call_sees_them_in_onnxruntime(stock, tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "cached.pte"
    path.write_bytes(export(Cached(), TensorRTMemoryPlanningPass(), "onnx"))
    facts = stock({"program": str(path), "calls": CALLS}, TRT_ET_CUDA="simulated:1")
    check_calls(facts["results"][0], Cached())


def test_nothing_of_a_cache_on_its_gpu_is_copied(results):
    def copied(name):
        before, after = results[name]["before"], results[name]["after"]
        return {key: after[key] - before[key] for key in ("bytes_h2d", "bytes_d2h", "bytes_d2d")}

    position, rows = CALLS[0]
    given = position.nbytes + rows.nbytes
    cache = torch.zeros(SHAPE).nbytes
    assert copied("on the GPU") == {"bytes_h2d": given, "bytes_d2h": cache, "bytes_d2d": 0}
    assert copied("copied")["bytes_h2d"] == given + cache
