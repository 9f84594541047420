"""Methods that share state: on the GPU where all of them can, on the host else, as eager has it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from torch import nn

from tests.support.lowering import reference
from tests.support.native_environment import environment
from tests.support.python_process import run_forked
from trt_et import TensorRTMemoryPlanningPass
from trt_et.errors import OptionError
from trt_et.inspection import inspect_program
from trt_et.runtime import runner_path

X = torch.arange(6.0).reshape(2, 3) + 1

# One process loads each program twice: an instance shares nothing with another.
RUN = """
import sys, torch, trt_et.runtime
from tests.support.run_stock import stats
trt_et.runtime.load(cuda="simulated:2")
from executorch.runtime import Runtime
for path in sys.argv[1:]:
    calls, x = torch.load(path + ".calls")
    both = []
    for instance in range(2):
        program = Runtime.get().load_program(path + ".pte")
        found = []
        for name in calls:
            method = program.load_method(name)
            before = stats()
            outputs = [tensor.clone() for tensor in method.execute([x])]
            copied = stats()["bytes_h2d"] - before["bytes_h2d"]
            found.append((outputs, copied))
        both.append((program, found))
    torch.save([found for _, found in both], path + ".found")
"""


class Method(nn.Module):
    """One method of a model with two caches."""

    def __init__(self, function: Callable[..., Any], *buffers: str) -> None:
        super().__init__()
        self.function = function
        for name in buffers or ("total",):
            self.register_buffer(name, torch.zeros(2, 3))

    def forward(self, x):
        return self.function(self, x)


def prompt(self, x):
    self.total.copy_(self.total * 0 + x * 2)
    return self.total + 1


def step(self, x):
    y = self.total * 3
    self.total.add_(x)
    return y + self.total


def halve(self, x):
    self.total.mul_(0.5)
    return self.total * x


def by_cpu(self, x):
    self.total.copy_(torch.cumsum(self.total + x, 0))
    return self.total + x


def both(self, x):
    self.other.add_(self.total * x)
    self.total.add_(self.other)
    return self.total + self.other


def other(self, x):
    self.other.add_(x)
    return self.other * 2


def read(self, x):
    return self.total * x


def write(self, x):
    self.total.copy_(x * 2)
    self.other.copy_(x + 1)
    return x - 1


def keep(self, x):
    self.other.add_(torch.cat([self.total, self.other])[:2] * x)
    self.total.copy_(self.total)  # As it is: the other method's, and no constant.
    return self.other * 3


@dataclass
class Case:
    methods: dict[str, Method]
    on_gpu: bool
    partitioners: dict[str, list] = field(default_factory=dict)

    def partitioner(self, name: str) -> list:
        default = reference(excluded_ops=[torch.ops.aten.cumsum])
        return self.partitioners.get(name, [default])


GPU_1 = [reference(device=1)]
TWO = {"prompt": Method(prompt), "step": Method(step)}
CASES = {
    "prompt and step": Case(TWO, True),
    "on another GPU": Case(TWO, True, {"prompt": GPU_1, "step": GPU_1}),
    "three methods": Case({**TWO, "halve": Method(halve)}, True),
    "two caches": Case(
        {"both": Method(both, "total", "other"), "step": Method(step, "total", "other")}, True
    ),
    "a cache of each method": Case({"step": Method(step), "other": Method(other, "other")}, True),
    "one method writes, one reads": Case(
        {"write": Method(write, "total", "other"), "keep": Method(keep, "total", "other")}, True
    ),
    "two GPUs": Case(TWO, False, {"step": GPU_1}),
    "a method without engine": Case(TWO, False, {"step": []}),
    "one that the CPU writes": Case({"step": Method(step), "cpu": Method(by_cpu)}, False),
}


def lowered(case: Case, planning: Any) -> bytes:
    with torch.no_grad():
        manager = to_edge_transform_and_lower(
            {name: torch.export.export(m.eval(), (X,)) for name, m in case.methods.items()},
            partitioner={name: case.partitioner(name) for name in case.methods},
        )
        config = ExecutorchBackendConfig(memory_planning_pass=planning)
        return bytes(manager.to_executorch(config).buffer)


def sequence(case: Case) -> list[str]:
    first, *others = case.methods
    return [first, *others, *others, first, *others]


def eager(case: Case) -> list[torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    for method in case.methods.values():
        for name in dict(method.named_buffers()):
            setattr(method, name, state.setdefault(name, torch.zeros(2, 3)))
    with torch.no_grad():
        return [case.methods[name](X).clone() for name in sequence(case)]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("shared")
    programs = {
        name: lowered(case, TensorRTMemoryPlanningPass(share_mutable_buffers=True))
        for name, case in CASES.items()
    }
    for name, pte in programs.items():
        (folder / f"{name}.pte").write_bytes(pte)
        torch.save((sequence(CASES[name]), X), folder / f"{name}.calls")
    done = run_forked(RUN, *programs, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {name: (pte, torch.load(folder / f"{name}.found")) for name, pte in programs.items()}


@pytest.mark.parametrize("name", CASES)
def test_each_method_sees_what_the_others_wrote(found, name):
    expected = eager(CASES[name])
    for calls in found[name][1]:
        for (outputs, _), want in zip(calls, expected, strict=True):
            torch.testing.assert_close(outputs[0], want)


@pytest.mark.parametrize("name", CASES)
def test_so_they_do_in_executor_runner(found, name, tmp_path):
    (tmp_path / "model.pte").write_bytes(found[name][0])
    np.save(tmp_path / "x.npy", X.numpy())
    methods = sequence(CASES[name])
    command = [str(runner_path()), "--model_path=model.pte", "--inputs=x.npy", "--output_file=y"]
    subprocess.run(
        [*command, "--method_name", ",".join(methods), "--print_output=none"],
        cwd=tmp_path,
        env=environment(TRT_ET_CUDA="simulated:2"),
        check=True,
    )
    for index, want in enumerate(eager(CASES[name])):
        output = np.fromfile(tmp_path / f"y-{index}-0.bin", dtype=np.float32)
        np.testing.assert_allclose(output, want.numpy().ravel(), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.on_gpu])
def test_state_that_all_methods_have_on_one_gpu_stays_there(found, name):
    for calls in found[name][1]:
        assert [copied for _, copied in calls] == [X.nbytes] * len(calls)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.on_gpu])
def test_other_state_is_shared_on_the_host(found, name):
    delegates = [d for method in inspect_program(found[name][0]) for d in method.delegates]
    specs = [spec for delegate in delegates for spec in delegate.compile_specs]
    assert specs
    assert not [value for key, value in specs if key == "device_state"]


def test_a_delegate_that_holds_changed_state_as_a_constant_is_refused():
    methods = {"step": Method(step), "read": Method(read)}
    planning = TensorRTMemoryPlanningPass(share_mutable_buffers=True)
    with pytest.raises(OptionError, match=r"total .*constant in delegate .*excluded_ops"):
        lowered(Case(methods, False), planning)
    # The way out.
    assert lowered(Case(methods, False, {"read": []}), planning)


def test_executorch_alone_cannot_plan_devices_and_shared_state():
    """What the pass is for; once ExecuTorch can, look again."""
    with pytest.raises(ValueError, match="Cannot share mutable buffers"):
        lowered(CASES["prompt and step"], MemoryPlanningPass(share_mutable_buffers=True))
