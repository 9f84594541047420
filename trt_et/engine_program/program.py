"""The program of an engine, which every builder starts from: plain ATen with bindings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx import Graph, GraphModule, Node

from trt_et.blob.model import Binding
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.errors import BuilderError
from trt_et.graph.subgraphs import copied_graph

DTYPE_NAMES: Final[dict[torch.dtype, str]] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float64: "float64",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "bool",
}

Shape = tuple[int, ...]
ProfileShapes = Mapping[str, tuple[Shape, Shape, Shape]]
"""Smallest, best tuned and largest shape of dynamic inputs, by name."""


@dataclass(frozen=True)
class EngineProgram:
    """A partition that a builder can turn into an engine.

    Attributes:
        exported: ATen dialect; parameters, buffers and constants are lifted and hold real values.
            Its user inputs and outputs are contiguous: it permutes the delegate's tensor
            if necessary, and the binding has the ``dim_order``.
            Its names do not depend on the program around it (``canonical_names.py``).
        inputs: One binding for each user input, in the order of the delegate's arguments, named
            after its placeholder: ``input0``, ``input1``, ...
        outputs: One binding for each output, in order, named ``output0``, ``output1``, ...
        names: For every node of the program's graph, its name in the Edge program.
        sources: The Edge program's weights and constants, by placeholder name. Their memory layout
            may differ from ``constants``, which are contiguous.
        profiles: The requested optimization profiles: smallest, best tuned and largest shape of
            every dynamic input, by name. Empty: one profile with the bindings' ranges.
        aliased_outputs: The outputs that may be written into an input's memory, by binding name:
            nothing else in the program needs the old value.
    """

    exported: ExportedProgram
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, torch.Tensor] = field(default_factory=dict)
    profiles: tuple[ProfileShapes, ...] = ()
    aliased_outputs: tuple[InPlaceBuffer, ...] = ()

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Return the inputs, then the outputs."""
        return self.inputs + self.outputs

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """Return the values of all placeholders except user inputs, by name."""
        values: Mapping[str, Any] = {**self.exported.constants, **self.exported.state_dict}
        return {
            spec.arg.name: values[str(spec.target)]
            for spec in self.exported.graph_signature.input_specs
            if spec.kind is not InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
        }


def unlift(program: ExportedProgram) -> GraphModule:
    """Return a module that contains the lifted tensors, without copies."""
    values = EngineProgram(program, (), ()).constants
    root = torch.nn.Module()
    custom = [s for s in program.graph_signature.input_specs if s.kind is InputKind.CUSTOM_OBJ]
    if custom:
        raise BuilderError(
            f"custom object {custom[0].target} cannot go into an engine; leave the operator that "
            "takes it to the CPU (excluded_ops=...)"
        )

    def attribute(node: Node, graph: Graph, copies: dict[Node, Node]) -> Node | None:
        if node.op != "placeholder" or node.name not in values:
            return None
        name = f"_constant_{node.name}"
        root.register_buffer(name, values[node.name].detach())
        new = graph.get_attr(name)
        new.meta = dict(node.meta)
        return new

    return GraphModule(root, copied_graph(program.graph, attribute)[0])
