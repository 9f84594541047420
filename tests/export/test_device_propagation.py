"""What ExecuTorch makes of our device specs: pytorch/executorch#18078, box by box.

What ExecuTorch itself does is held here too, so that an upgrade shows.
"""

from __future__ import annotations

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_pass import PropagateDevicePass
from executorch.exir.schema import Tensor

from tests.support.lowering import (
    blobs,
    delegate_tensor_devices,
    export,
    lower_case,
)
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.engine_info import parse_device_id
from trt_et.inspection import inspect_program
from trt_et.target_device import parse_device

SPLIT = {"excluded_ops": [torch.ops.aten.cumsum]}


def pinned(device: bytes) -> dict:
    return {"compile_specs": [CompileSpec("target_device", device)]}


def calls(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    return [n for n in program.graph.nodes if n.target is executorch_call_delegate]


@pytest.mark.parametrize(
    ("device", "index"), [(b"CUDA:1", 1), (b"Cuda", 0), (b"cuda:0", 0), (b"cUdA:2", 2)]
)
def test_the_device_string_is_case_insensitive_and_no_index_means_0(device, index):
    assert delegate_tensor_devices(lower_case("order", **pinned(device))) == [{("CUDA", index)}]
    assert parse_device(device.decode()) == index


def test_an_unknown_type_is_a_value_error():
    with pytest.raises(ValueError, match=r"[Uu]nknown device type|not a GPU"):
        lower_case("order", **pinned(b"tpu:0"))
    with pytest.raises(ValueError, match="tpu:0"):
        TensorRTPartitioner(builder="reference", device="tpu:0")


def test_delegates_carry_device_and_index_and_other_tensors_stay_on_the_cpu():
    pte = lower_case("split", device="cuda:1", **SPLIT)
    assert delegate_tensor_devices(pte) == [{("CUDA", 1)}, {("CUDA", 1)}]
    (plan,) = deserialize_pte_binary(pte).program.execution_plan
    kernels = [
        instruction.instr_args
        for chain in plan.chains
        for instruction in chain.instructions
        if type(instruction.instr_args).__name__ == "KernelCall"
    ]
    (cumsum,) = (k for k in kernels if "cumsum" in plan.operators[k.op_index].name)
    tensors = [plan.values[i].val for i in cumsum.args]
    infos = [t.extra_tensor_info for t in tensors if isinstance(t, Tensor)]
    assert len(infos) >= 2
    assert all(info is None or info.device_type.name == "CPU" for info in infos)


def test_a_delegate_without_a_spec_is_untouched():
    # Beside one of ours, with our memory planning: nothing of it may rub off.
    ours = TensorRTPartitioner(
        builder="reference", device="cuda:1", excluded_ops=["aten.linear", "aten.addmm"]
    )
    manager = to_edge_transform_and_lower(export("mlp"), partitioner=[ours, XnnpackPartitioner()])
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    pte = bytes(manager.to_executorch(config).buffer)
    backends = [delegate.backend_id for delegate in inspect_program(pte)[0].delegates]
    labels = delegate_tensor_devices(pte)
    assert {"XnnpackBackend", "TensorRTBackend"} == set(backends)
    for backend, devices in zip(backends, labels, strict=True):
        assert devices == {("CPU", 0) if backend == "XnnpackBackend" else ("CUDA", 1)}


def test_a_delegate_call_without_a_lowered_module_raises():
    manager = to_edge_transform_and_lower(
        export("order"), partitioner=[TensorRTPartitioner(builder="reference")]
    )
    module = manager.exported_program().graph_module
    (call,) = calls(manager.exported_program())
    delattr(module, call.args[0].target)
    with pytest.raises((RuntimeError, AttributeError)):
        PropagateDevicePass(enable_non_cpu_memory_planning=True)(module)


def test_several_delegates_on_several_gpus_are_each_labelled_right():
    pte = lower_case("split", device=lambda part: part.index + 1, **SPLIT)
    assert delegate_tensor_devices(pte) == [{("CUDA", 1)}, {("CUDA", 2)}]
    assert [parse_device_id(blob) for blob in blobs(pte)] == [1, 2]


@pytest.mark.parametrize("planning", [MemoryPlanningPass, TensorRTMemoryPlanningPass])
def test_memory_that_the_caller_gives_for_an_output_is_on_the_host(planning):
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),))
    manager = to_edge_transform_and_lower(
        program, partitioner=[TensorRTPartitioner(builder="reference")]
    )
    config = ExecutorchBackendConfig(memory_planning_pass=planning(alloc_graph_output=False))
    graph = manager.to_executorch(config).exported_program().graph
    (output,) = graph.output_node().all_input_nodes
    # Once ExecuTorch's own leaves it unplanned too, what mends it here can go.
    assert (output.meta["spec"].mem_id is None) == (planning is TensorRTMemoryPlanningPass)
    (spec,) = graph.output_node().meta["spec"]
    assert spec.mem_id is None
    assert (spec is output.meta["spec"]) == (planning is TensorRTMemoryPlanningPass)
