"""State on the GPU: what moves there, what stays, and that both give what eager gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir import (
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch import nn

from tests.support.lowering import delegate_tensor_devices, planned_devices, reference
from tests.support.models import State, Unary
from tests.support.python_process import run_forked
from trt_et import OptionError, TensorRTMemoryPlanningPass
from trt_et.inspection import inspect_program

pytestmark = pytest.mark.usefixtures("no_grad")

X = torch.arange(6.0).reshape(2, 3)
STATE_BYTES = X.numel() * 4
READ_TWICE = Unary(lambda x: torch.relu(x) + torch.sinh(x))

# Each program is loaded once in a process of its own, so that host memory too begins at zero.
RUN = """
import os, sys, torch, trt_et.runtime
from tests.support.run_stock import run
trt_et.runtime.load(cuda="simulated:2")
for name in sys.argv[1:]:
    if os.fork():
        assert os.wait()[1] == 0
        continue
    found = run({"program": name + ".pte", "inputs": [torch.load("x")], "repeat": 4})
    assert "every" in found, found
    torch.save(found, name + ".found")
    os._exit(0)
"""


@dataclass
class Program:
    """A model's program, on which device each buffer is planned, and what its calls did."""

    model: nn.Module
    pte: bytes
    homes: dict[str, tuple[str, int]]
    state_inputs: list[list[bytes]]  # Of each delegate: the spec that names inputs of state.
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def copied(self) -> dict[str, int]:
        before, after = self.found["before"], self.found["after"]
        return {key: after[key] - before[key] for key in ("bytes_h2d", "bytes_d2h")}

    def agrees_with_eager(self) -> None:
        for outputs in self.found["every"]:
            expected = self.model(X)
            expected = expected if isinstance(expected, tuple) else (expected,)
            for have, want in zip(outputs, expected, strict=True):
                torch.testing.assert_close(have, want)


def finished(
    model: nn.Module,
    planning: Any = None,
    *,
    partitioner: Any = None,
    config: Any = None,
    **options,
) -> ExecutorchProgramManager:
    """Lower a model; ``config`` are further options of ``ExecutorchBackendConfig``."""
    program = torch.export.export(model.eval(), (X,))
    partitioner = partitioner or [reference(**options)]
    manager = to_edge_transform_and_lower(program, partitioner=partitioner)
    planning = planning or TensorRTMemoryPlanningPass()
    return manager.to_executorch(
        ExecutorchBackendConfig(memory_planning_pass=planning, **(config or {}))
    )


def planned(model: nn.Module, *given, **options) -> Program:
    done = finished(model, *given, **options)
    specs = {
        node.name.removeprefix("b_"): node.meta["spec"]
        for node in done.exported_program().graph.nodes
        if node.op == "placeholder" and node.name.startswith("b_")
    }
    homes = {name: (spec.device.name, spec.device_index) for name, spec in specs.items()}
    state_inputs = [
        [spec.value for spec in module.compile_specs if spec.key == "state_inputs"]
        for module in done.exported_program().graph_module.children()
        if isinstance(module, LoweredBackendModule)
    ]
    return Program(model, bytes(done.buffer), homes, state_inputs)


class Two(State):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.total.copy_(self.total + x)
        self.count.add_(x.sum(0) + self.total[0])
        return self.total - self.count, self.count * 1


class ReadByCpu(State):
    def forward(self, x):
        y = torch.cumsum(self.total, 0)
        self.total.add_(x)
        return y + self.total


class ReadLater(State):
    """A second engine reads the old value after the first has made the new one."""

    def forward(self, x):
        new = self.total + x
        result = self.total * torch.cumsum(new * 3, 0)
        self.total.copy_(new)
        return result


class WrittenByCpu(State):
    def forward(self, x):
        y = self.total * 2
        self.total.copy_(torch.cumsum(y + x, 0))
        return y


class WrittenWithoutBeingRead(State):
    def forward(self, x):
        self.total.copy_(x * 2)
        return x + 1


class Shifted(State):
    """The last two inputs; ExecuTorch alone loses the older one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("older", torch.zeros(2, 3))

    def forward(self, x):
        y = self.older * 2 + self.total + x
        self.older.copy_(self.total.to(torch.float32))
        self.total.copy_(x * 3)
        return y


class OnTwoGpus(State):
    def forward(self, x):
        y = self.total * 3
        self.total.add_(x)
        return y


class ReadOnAnotherGpu(State):
    """Another GPU's engine reads the old value before the new one is made."""

    def forward(self, x):
        y = self.total * 3
        self.total.copy_(self.total + x + y)
        return y


class ManyOutputs(State):
    """Outputs of an engine, and one of the CPU."""

    def forward(self, x):
        self.total.add_(x)
        y = self.total * 2
        return y, torch.cumsum(y, 0), y + 1


class OfAnotherLayout(nn.Module):
    """Its new value is laid out in memory otherwise than the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 1, 2, 3).expand(1, 2, 2, 3).clone())

    def forward(self, x):
        new = (self.total + x).to(memory_format=torch.channels_last)
        self.total.copy_(new)
        return x + 1


MODELS: dict[str, type[State]] = {
    "moved": State,
    "stock": State,
    "two": Two,
    "read_by_cpu": ReadByCpu,
    "read_later": ReadLater,
    "written_by_cpu": WrittenByCpu,
    "written_only": WrittenWithoutBeingRead,
    "shifted": Shifted,
    "on_two_gpus": OnTwoGpus,
    "read_on_another_gpu": ReadOnAnotherGpu,
    "outputs_given": ManyOutputs,
}
TWO_GPUS = [
    reference(excluded_ops=["aten.mul"], device=0),
    reference(device=1),
]
OPTIONS: dict[str, dict] = {
    "moved": {"device": "cuda:1"},
    "stock": {"planning": MemoryPlanningPass()},
    "on_two_gpus": {"partitioner": TWO_GPUS},
    "read_on_another_gpu": {"partitioner": TWO_GPUS},
    "outputs_given": {
        "planning": TensorRTMemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False),
        "excluded_ops": [torch.ops.aten.cumsum],
    },
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, Program]:
    folder = tmp_path_factory.mktemp("state")
    with torch.no_grad():
        programs = {
            name: planned(make(), **OPTIONS.get(name, {"excluded_ops": [torch.ops.aten.cumsum]}))
            for name, make in MODELS.items()
        }
    for name, program in programs.items():
        (folder / f"{name}.pte").write_bytes(program.pte)
    torch.save(X, folder / "x")
    done = run_forked(RUN, *programs, cwd=folder)
    assert done.returncode == 0, done.stderr
    for name, program in programs.items():
        program.found = torch.load(folder / f"{name}.found")
    return programs


@pytest.mark.parametrize("name", MODELS)
def test_state_is_that_of_eager(programs, name):
    programs[name].agrees_with_eager()


def test_state_stays_on_its_gpu_between_calls(programs):
    moved = programs["moved"]
    assert moved.copied == {"bytes_h2d": X.nbytes, "bytes_d2h": X.nbytes}
    assert planned_devices(moved.pte) == {"cuda:1"}
    assert delegate_tensor_devices(moved.pte) == [{"cuda:1"}]
    assert moved.homes == {"total": ("CUDA", 1)}


def test_executorch_alone_copies_state_at_every_call(programs):
    """What the pass is for; once ExecuTorch does it, it can go."""
    assert programs["stock"].copied["bytes_h2d"] == X.nbytes + STATE_BYTES


def test_state_that_nothing_reads_is_not_copied_to_the_host(programs):
    assert programs["written_only"].copied == {"bytes_h2d": X.nbytes, "bytes_d2h": X.nbytes}
    assert programs["written_only"].homes == {"total": ("CUDA", 0)}


def test_several_buffers_move(programs):
    assert programs["two"].copied["bytes_h2d"] == X.nbytes
    assert set(programs["two"].homes.values()) == {("CUDA", 0)}


@pytest.mark.parametrize(
    "name",
    [
        "read_by_cpu",
        "read_later",
        "written_by_cpu",
        "on_two_gpus",
        "read_on_another_gpu",
    ],
)
def test_state_that_must_not_be_written_in_place_stays_on_the_host(programs, name):
    assert programs[name].homes == {"total": ("CPU", 0)}


def test_two_partitioners_use_two_gpus(programs):
    assert planned_devices(programs["on_two_gpus"].pte) == {"cuda:0", "cuda:1"}


def test_the_first_engine_that_reads_state_is_told_to_clear_it(programs):
    assert programs["moved"].state_inputs == [[b"0"]]
    # In which order they enter is torch's choice: 2.13 and 2.14 differ.
    ((indices,),) = programs["two"].state_inputs
    (engine,) = (d.engine for d in inspect_program(programs["two"].pte)[0].delegates)
    shapes = [engine.inputs[int(index)].shape for index in indices.split(b",")]
    assert sorted(shapes) == [(2, 3), (3,)]
    assert programs["read_by_cpu"].state_inputs
    assert not any(programs["read_by_cpu"].state_inputs)


def test_state_of_another_layout_than_its_new_value_stays_on_the_host():
    found = planned(OfAnotherLayout(), excluded_ops=[torch.ops.aten.cumsum])
    assert delegate_tensor_devices(found.pte) == [{"cuda:0"}]
    assert found.homes == {"total": ("CPU", 0)}


def test_state_that_the_caller_allocates_is_left_alone():
    planning = TensorRTMemoryPlanningPass(alloc_mutable_buffers=False)
    found = planned(State(), planning, config={"emit_mutable_buffer_names": True})
    assert found.homes == {"total": ("CPU", 0)}


def test_state_that_another_backend_writes_stays_where_executorch_plans_it():
    """Only of our own delegate is it known that outputs may be written over inputs."""

    class OnGpu(Partitioner):
        def partition(self, exported_program) -> PartitionResult:
            for node in exported_program.graph.nodes:
                if "aten.add.Tensor" in str(node.target):
                    node.meta["delegation_tag"] = "other"
            specs = [CompileSpec("target_device", b"cuda:0")]
            return PartitionResult(
                exported_program, {"other": DelegationSpec(XnnpackBackend.__name__, specs)}
            )

    found = planned(State(), partitioner=[OnGpu()])
    assert delegate_tensor_devices(found.pte) == [{"cuda:0"}]
    assert found.homes == {"total": ("CPU", 0)}


def test_state_with_an_initial_value_stays_where_executorch_loads_it():
    class Started(State):
        def __init__(self) -> None:
            super().__init__()
            self.total += 5

    config = {"passes": [InitializedMutableBufferPass(["total"])]}
    graph = finished(Started(), config=config).exported_program().graph
    (buffer,) = (node for node in graph.nodes if node.name == "b_total")
    assert buffer.meta["spec"].device.name == "CPU"


def test_tensors_are_planned_at_the_alignment_of_tensorrt():
    graph = finished(State()).exported_program().graph
    specs = [node.meta["spec"] for node in graph.nodes if hasattr(node.meta.get("spec"), "mem_id")]
    offsets = [spec.mem_offset for spec in specs if spec.mem_offset is not None]
    assert len(offsets) > 2
    assert all(offset % 256 == 0 for offset in offsets)


def test_an_input_on_the_device_is_refused_where_the_cpu_reads_it_too():
    planning = TensorRTMemoryPlanningPass(inputs_on_device=True)
    with pytest.raises(OptionError, match=r"input x is read on several devices: cuda:0, the CPU"):
        finished(READ_TWICE, planning, excluded_ops=["aten.sinh"])
    planning = TensorRTMemoryPlanningPass(inputs_on_device=["y"])
    with pytest.raises(OptionError, match=r"names 'y', but the inputs of the method are x$"):
        finished(READ_TWICE, planning, excluded_ops=["aten.sinh"])


@pytest.mark.parametrize("option", ["share_mutable_buffers", "alloc_graph_input"])
def test_options_that_do_not_go_with_inputs_on_the_device_are_refused(option):
    with pytest.raises(OptionError, match="inputs_on_device cannot be combined with"):
        TensorRTMemoryPlanningPass(inputs_on_device=True, **{option: True})
