"""Copies a program, so that nothing that is done to the copy reaches the original."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass
from torch.utils._pytree import tree_map

from trt_et.graph.subgraphs import copied_module, nodes_of
from trt_et.graph.symbolic_shapes import shape_env_of


def with_own_symbols(program: ExportedProgram) -> ExportedProgram:
    """Copy a program with its graphs, their metadata, and the symbols of its sizes.

    The copy shares its weights alone. Their dictionaries are copied: lowering removes the entries
    that a delegate consumes (``_unsafe_adjust_original_program``). The provenance of nodes leads to
    the original ones, where ExecuTorch's ``Inspector`` looks for them.
    """
    own = copy.copy(program)
    own._graph_module = copied_module(program.graph_module)
    own._graph_signature = copy.deepcopy(program.graph_signature)
    own._range_constraints = dict(program.range_constraints)
    own._state_dict = dict(program.state_dict)
    own._constants = dict(program.constants)
    own._guards_code = list(program._guards_code)
    symbols = _Symbols()
    for old, new in zip(nodes_of(program), nodes_of(own), strict=True):
        new.meta["from_node"] = [NodeSource(old, "trt_et", NodeSourceAction.CREATE)]
        if "val" in new.meta:
            new.meta["val"] = tree_map(symbols.copied, new.meta["val"])
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR:
            _keep_value(program, own, spec)
    return own


def _keep_value(program: ExportedProgram, own: ExportedProgram, spec: InputSpec) -> None:
    """Let torch know the value of a constant in the copy too: it computes ``item()`` of it."""
    old, new = (
        next(n for n in each.graph.nodes if n.name == spec.arg.name).meta["val"]
        for each in (program, own)
    )
    if isinstance(old, FakeTensor) and old.constant is not None:
        new.constant = old.constant
        converter = new.fake_mode.fake_tensor_converter
        converter.set_tensor_memo(own.constants[str(spec.target)], new)
        # The converter keeps no tensor alive, and later programs have others in their metadata.
        vars(converter).setdefault("trt_et_constants", []).append(new)


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
        if is_traceable_wrapper_subclass(value):  # A quantized weight of torchao, for example.
            needs_grad: bool = value.requires_grad  # type: ignore[attr-defined]
            copy_of: Any = transform_subclass  # It has no types.
            parts = copy_of(value, lambda _, part: self.copied(part))
            return parts.requires_grad_(needs_grad)
        if not isinstance(value, FakeTensor) or value.layout != torch.strided:
            return value
        with self._mode(value.fake_mode):
            return torch.empty_strided(
                tree_map(self.copied, tuple(value.shape)),
                tree_map(self.copied, value.stride()),
                dtype=value.dtype,
                device=value.device,
                requires_grad=value.requires_grad,
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
            own = FakeTensorMode(
                allow_fallback_kernels=known.allow_fallback_kernels,
                allow_non_fake_inputs=known.allow_non_fake_inputs,
                shape_env=known.shape_env and self._environment(known.shape_env),
                static_shapes=known.static_shapes,
                export=known.fake_tensor_converter.export,
            )
            own._allow_unsafe_data_ptr_access = known._allow_unsafe_data_ptr_access
            self._modes[id(known)] = own
        return self._modes[id(known)]
