"""What quantized programs become: the plan, and the network that TensorRT is given."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from trt_et import TensorRTPartitioner
from trt_et.conversion.installed import installed_variant
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines import serialize as engines

needs_rtx = pytest.mark.skipif(
    installed_variant() != "tensorrt_rtx", reason="torch-tensorrt-rtx is not installed"
)


def plan(program: torch.export.ExportedProgram):
    return TensorRTPartitioner(builder="reference").explain(program)


class Network:
    """The network that TensorRT gets of a program, whole in one partition."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        program = make_engine_program(program.run_decompositions({}), "test")
        self.built = engines.build_network(BuildRequest("test", program, 0, BuildOptions()))
        layers = [self.built.network.get_layer(i) for i in range(self.built.network.num_layers)]
        self.kinds = Counter(str(layer.type).rpartition(".")[2] for layer in layers)
        self.constants = {}
        for layer in layers:
            if str(layer.type).endswith("CONSTANT"):
                layer.__class__ = self.built.trt.IConstantLayer
                self.constants[layer.name] = layer.weights
