"""Exports, quicker: half of the time of small models goes into what is left out here."""

from __future__ import annotations

import gc
import typing
from collections.abc import Callable, Iterator

import torch
import torch._export  # Keeps the function that is replaced.
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.pass_base import ExportPass
from executorch.exir.passes import (
    MemoryFormatOpsPass,
    NormalizeTransposePass,
    ReplaceBrokenOpsWithFunctionalOpsPass,
    ScalarToTensorPass,
    SymToTensorPass,
)
from executorch.exir.passes.dim_order_ops_registry import DimOrderOpsMap
from torch._export import utils
from torch.export import decomp_utils, exported_program
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult


def make_exports_quicker() -> None:
    """Leave out what changes no program, in this process."""
    # Exporting makes many objects and few cycles: a tenth of its time is looking for them.
    gc.set_threshold(100_000, 10, 10)
    _look_up_composite_operators_once()
    for kind, changes in PASSES.items():
        _run_only_for_nodes_that_change(kind, changes)


def _look_up_composite_operators_once() -> None:
    """Let torch look up all composite operators once a decomposition, not once a namespace of them.

    Torch also evaluates an annotation at each registration of a kernel: ``typing`` remembers it.
    """
    look_up, collect = utils._materialize_cpp_cia_ops, utils._collect_all_valid_cia_ops

    def collect_quickly() -> typing.Any:
        look_up()
        return collect()

    look_up()  # For aten, whose operators torch collects apart, and once.
    utils._materialize_cpp_cia_ops = lambda: None
    for module in (decomp_utils, exported_program):
        module._collect_all_valid_cia_ops = collect_quickly  # type: ignore[attr-defined]
    torch._ops.Callable = typing.Callable  # type: ignore[attr-defined]


def _tensor_arguments(node: Node) -> Iterator[object]:
    if isinstance(node.target, (torch._ops.OpOverload, EdgeOpOverload)):
        for index, argument in enumerate(node.target._schema.arguments):
            if isinstance(argument.type, torch.TensorType):
                in_place = index < len(node.args)
                yield node.args[index] if in_place else node.kwargs.get(argument.name)


def _takes_a_number_as_tensor(node: Node) -> bool:
    return any(isinstance(value, (int, float)) for value in _tensor_arguments(node))


def _takes_a_symbol_as_tensor(node: Node) -> bool:
    symbols = torch.SymInt, torch.SymFloat, torch.SymBool
    return any(
        isinstance(value, Node) and isinstance(value.meta["val"], symbols)
        for value in _tensor_arguments(node)
    )


# ExecuTorch runs a program anew in each of these passes. None changes more than these nodes.
PASSES: dict[type[ExportPass], Callable[[Node], bool]] = {
    NormalizeTransposePass: lambda node: node.target is torch.ops.aten.t.default,
    ReplaceBrokenOpsWithFunctionalOpsPass: lambda node: getattr(node.target, "is_view", False),
    ScalarToTensorPass: _takes_a_number_as_tensor,
    SymToTensorPass: _takes_a_symbol_as_tensor,
    MemoryFormatOpsPass: lambda node: node.target in DimOrderOpsMap,
}


def _run_only_for_nodes_that_change(
    kind: type[ExportPass], changes: Callable[[Node], bool]
) -> None:
    run = kind.call

    def call(self: ExportPass, module: GraphModule) -> PassResult:
        graphs = (inner.graph for inner in module.modules() if isinstance(inner, GraphModule))
        if any(
            node.op == "call_function" and changes(node) for graph in graphs for node in graph.nodes
        ):
            return run(self, module)
        return PassResult(module, False)

    kind.call = call  # type: ignore[method-assign]
