"""What ExecuTorch makes of our device specs: pytorch/executorch#18078, box by box.

What ExecuTorch itself does is held here too, so that an upgrade shows.
"""

from __future__ import annotations

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir.passes import MemoryPlanningPass

from tests.support.lowering import delegate_tensor_devices, export, finish, reference
from trt_et import TensorRTMemoryPlanningPass
from trt_et.inspection import inspect_program


def test_a_delegate_without_a_spec_is_untouched():
    # Beside one of ours, with our memory planning: nothing of it may rub off.
    ours = reference(device="cuda:1", excluded_ops=["aten.linear", "aten.addmm"])
    planning = TensorRTMemoryPlanningPass()
    pte = bytes(finish(export("mlp"), ours, XnnpackPartitioner(), planning=planning).buffer)
    backends = [delegate.backend_id for delegate in inspect_program(pte)[0].delegates]
    labels = delegate_tensor_devices(pte)
    assert {"XnnpackBackend", "TensorRTBackend"} == set(backends)
    for backend, devices in zip(backends, labels, strict=True):
        assert devices == {"cpu" if backend == "XnnpackBackend" else "cuda:1"}


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
