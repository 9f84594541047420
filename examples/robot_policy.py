"""Export a robot policy of lerobot, run it, and count what crosses the host.

    python examples/robot_policy.py act|diffusion|smolvla [--builder tensorrt_rtx]

``encode`` takes an observation: the cameras' images as uint8, the joints, and noise. What it makes
of them stays on the GPU. ``denoise`` reads it there, makes one step, and returns the actions so
far. ACT has no steps: its only method returns the actions. Configurations are small and weights
random, so the actions mean nothing; they are those that lerobot's own code computes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from robot_policies import Policy

import trt_et.runtime
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.runtime import counters

POLICIES = ("act", "diffusion", "smolvla")
STEP = (torch.zeros(1, dtype=torch.long),)


def export(policy: Policy, builder: str, file: Path) -> None:
    """Write one program, whose methods share the state on the GPU and the weights."""
    methods = {"encode": (policy.observe, policy.observations[0])}
    if policy.denoise is None:
        methods = {"act": methods["encode"]}
    else:
        methods["denoise"] = (policy.denoise, STEP)
    partitioners = {name: TensorRTPartitioner(builder=builder) for name in methods}
    manager = to_edge_transform_and_lower(
        {
            name: torch.export.export(method.eval(), inputs)
            for name, (method, inputs) in methods.items()
        },
        partitioner={name: [partitioner] for name, partitioner in partitioners.items()},
    )
    planning = TensorRTMemoryPlanningPass(share_mutable_buffers=True)
    program = manager.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    with file.open("wb") as stream:
        program.write_to_file(stream)
    for name, partitioner in partitioners.items():
        print(f"{name}: {partitioner.report}")


class Controller:
    """Calls the methods of a program, and counts the bytes that cross the host."""

    def __init__(self, file: Path, policy: Policy) -> None:
        from executorch.runtime import Runtime

        self.policy = policy
        self.program = Runtime.get().load_program(file)
        self.methods = {name: self.program.load_method(name) for name in self.program.method_names}
        self.copied: dict[str, int] = {}  # In the last call of each method.
        self.needed: dict[str, int] = {}  # The bytes of its inputs and outputs.

    def call(self, name: str, inputs: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Run a method."""
        inputs = list(inputs)
        before = bytes_copied()
        found = self.methods[name].execute(inputs)
        self.copied[name] = bytes_copied() - before
        outputs = [output.clone() for output in found if output is not None]
        self.needed[name] = sum(tensor.nbytes for tensor in (*inputs, *outputs))
        return outputs

    def actions(self) -> torch.Tensor:
        """Return a chunk of actions."""
        first = "encode" if self.policy.denoise else "act"
        for observation in self.policy.observations:
            outputs = self.call(first, observation)
        for step in range(self.policy.steps):
            outputs = self.call("denoise", [torch.tensor([step])])
        return outputs[0]


def bytes_copied() -> int:
    """Return the bytes that simulated GPUs have copied from and to the host."""
    counted = counters()
    return counted.get("bytes_h2d", 0) + counted.get("bytes_d2h", 0)


def main() -> int:
    """Export, run two chunks, compare; 0 if the actions and the bytes are as expected."""
    parser = argparse.ArgumentParser()
    parser.add_argument("policy", choices=POLICIES)
    parser.add_argument("--builder", default="reference")
    parser.add_argument("--output", type=Path, default=Path("robot_policy"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    policy: Policy = import_module(f"robot_policies.{arguments.policy}").make()
    file = arguments.output / f"{arguments.policy}-{arguments.builder}.pte"
    export(policy, arguments.builder, file)
    if arguments.builder != "reference":
        return 0  # Needs a GPU.
    trt_et.runtime.load(cuda="simulated:1")
    controller = Controller(file, policy)
    differences = [float((controller.actions() - policy.expected).abs().max()) for _ in range(2)]
    print(f"largest difference from lerobot, in two chunks: {max(differences):.1e}")
    for name, copied in controller.copied.items():
        print(f"{name}: {copied:,} bytes crossed; inputs and outputs: {controller.needed[name]:,}")
    return 0 if max(differences) < 1e-4 and controller.copied == controller.needed else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
