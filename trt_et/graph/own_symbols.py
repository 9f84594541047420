"""Copies a program with new symbols for its sizes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_map

from trt_et.graph.subgraphs import copied_module, subgraphs
from trt_et.graph.symbolic_shapes import shape_env_of


def with_own_symbols(program: ExportedProgram) -> ExportedProgram:
    """Copy a program with new symbols: assumptions about its sizes do not reach the original.

    The copy shares its weights.
    """
    if not program.range_constraints:
        return program
    module = copied_module(program.graph_module)
    symbols = _Symbols()
    for subgraph in subgraphs(module):
        for node in subgraph.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = tree_map(symbols.copied, node.meta["val"])
    own: ExportedProgram = program._update(module, program.graph_signature)
    own._guards_code = list(program._guards_code)  # A loaded program has no others.
    return own


class _Symbols:
    """Copies of fake modes and of the environments of their symbols."""

    def __init__(self) -> None:
        self._environments: dict[int, ShapeEnv] = {}
        self._modes: dict[int, FakeTensorMode] = {}

    def copied(self, value: Any) -> Any:  # noqa: ANN401
        """Return a value of a node's metadata, with copied symbols."""
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            node = value.node
            environment = self._environment(shape_env_of(value))
            return type(value)(SymNode(node.expr, environment, node.pytype, node._hint))
        if not isinstance(value, FakeTensor) or value.layout != torch.strided:
            return value
        with self._mode(value.fake_mode):
            return torch.empty_strided(
                tree_map(self.copied, tuple(value.shape)),
                tree_map(self.copied, value.stride()),
                dtype=value.dtype,
                device=value.device,
            )

    def _environment(self, known: ShapeEnv) -> ShapeEnv:
        if id(known) not in self._environments:
            own = copy.copy(known)
            for name, value in vars(known).items():
                if hasattr(value, "__len__"):
                    setattr(own, name, copy.copy(value))
            self._environments[id(known)] = own
        return self._environments[id(known)]

    def _mode(self, known: FakeTensorMode) -> FakeTensorMode:
        if id(known) not in self._modes:
            self._modes[id(known)] = FakeTensorMode(
                allow_fallback_kernels=known.allow_fallback_kernels,
                allow_non_fake_inputs=known.allow_non_fake_inputs,
                shape_env=known.shape_env and self._environment(known.shape_env),
                static_shapes=known.static_shapes,
            )
        return self._modes[id(known)]
