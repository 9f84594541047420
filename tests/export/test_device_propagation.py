"""What ExecuTorch makes of our device specs: pytorch/executorch#18078, box by box.

What ExecuTorch itself does is held here too, so that an upgrade shows.
"""

from __future__ import annotations

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.schema import Tensor

from tests.support.lowering import delegate_tensor_devices, export, finish, lower_case, reference
from trt_et import TensorRTMemoryPlanningPass
from trt_et.inspection import inspect_program

SPLIT = {"excluded_ops": [torch.ops.aten.cumsum]}


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
    ours = reference(device="cuda:1", excluded_ops=["aten.linear", "aten.addmm"])
    planning = TensorRTMemoryPlanningPass()
    pte = bytes(finish(export("mlp"), ours, XnnpackPartitioner(), planning=planning).buffer)
    backends = [delegate.backend_id for delegate in inspect_program(pte)[0].delegates]
    labels = delegate_tensor_devices(pte)
    assert {"XnnpackBackend", "TensorRTBackend"} == set(backends)
    for backend, devices in zip(backends, labels, strict=True):
        assert devices == {("CPU", 0) if backend == "XnnpackBackend" else ("CUDA", 1)}


@pytest.mark.parametrize("planning", [MemoryPlanningPass, TensorRTMemoryPlanningPass])
def test_memory_that_the_caller_gives_for_an_output_is_on_the_host(planning):
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),))
    done = finish(program, reference(), planning=planning(alloc_graph_output=False))
    graph = done.exported_program().graph
    (output,) = graph.output_node().all_input_nodes
    # Once ExecuTorch's own leaves it unplanned too, what mends it here can go.
    assert (output.meta["spec"].mem_id is None) == (planning is TensorRTMemoryPlanningPass)
    (spec,) = graph.output_node().meta["spec"]
    assert spec.mem_id is None
    assert (spec is output.meta["spec"]) == (planning is TensorRTMemoryPlanningPass)
