"""Exports, quicker: half of the time of small models goes into what is left out here."""

from __future__ import annotations

import gc
import logging
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
from torch._C import DispatchKey
from torch._decomp.decompositions_for_rng import PhiloxState
from torch._export import utils
from torch._ops import OperatorBase, OpOverload
from torch._subclasses import fake_impls
from torch.export import ExportedProgram, _trace, decomp_utils, exported_program
from torch.fx import GraphModule, Node, _lazy_graph_module
from torch.fx.passes.infra.pass_base import PassResult
from torch.fx.traceback import NodeSource


def make_exports_quicker() -> None:
    """Leave out what changes no program, in this process."""
    # Exporting makes many objects and few cycles: a tenth of its time is looking for them.
    gc.set_threshold(100_000, 10, 10)
    _write_the_code_of_graphs_that_are_called()
    _look_up_composite_operators_once()
    _make_kernels_of_composite_operators_once()
    _make_values_once()
    _leave_out_traces()
    for kind, changes in PASSES.items():
        _run_only_for_nodes_that_change(kind, changes)


def _leave_out_traces() -> None:
    """Let torch trace no graphs, which pytest would keep, and copy no origins of nodes."""
    logging.getLogger("torch.__trace").propagate = True
    NodeSource.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]


def _write_the_code_of_graphs_that_are_called() -> None:
    _lazy_graph_module._use_lazy_graph_module_flag = True
    # Dynamo's export reads the specs that writing code sets.
    eagerly = _lazy_graph_module._use_lazy_graph_module(False)
    _trace._strict_export = eagerly(_trace._strict_export)


def _look_up_composite_operators_once() -> None:
    """Let torch look up all composite operators anew only if operators came or went.

    Torch also evaluates an annotation at each registration of a kernel: ``typing`` remembers it.
    """
    collect, of_key = (
        utils._collect_all_valid_cia_ops,
        torch._C._dispatch_get_registrations_for_dispatch_key,
    )
    collected: dict[int, set[OperatorBase]] = {}

    def collect_quickly() -> set[OperatorBase]:
        registered = len(of_key("CompositeImplicitAutograd"))
        if registered not in collected:
            collected[registered] = collect()
        return set(collected[registered])

    for module in (decomp_utils, exported_program):
        module._collect_all_valid_cia_ops = collect_quickly  # type: ignore[attr-defined]
    torch._ops.Callable = typing.Callable  # type: ignore[attr-defined]


class _CallSpec(typing.NamedTuple):
    in_spec: object
    out_spec: object


def _make_values_once() -> None:
    """Let torch make a class for all programs, and an empty tensor for all random states, once."""
    call_spec, nothing = exported_program.ExportedProgram.call_spec, torch.empty(0)

    def call_spec_quickly(self: ExportedProgram) -> _CallSpec:
        graph = next(iter(self.module_call_graph), None)
        if graph is None or graph.fqn or graph.signature is None:
            return call_spec.fget(self)  # type: ignore[no-any-return]
        return _CallSpec(graph.signature.in_spec, graph.signature.out_spec)

    def reset(self: PhiloxState) -> None:
        self.seed = self.base_offset = nothing
        self.relative_offset, self.offset_advanced_at_least_once = 0, False

    exported_program.ExportedProgram.call_spec = property(call_spec_quickly)
    PhiloxState.reset = reset


@dataclass(frozen=True)
class _Kernels:
    """A composite operator's kernels before a decomposition and in it, and its rule for fakes."""

    before: dict[DispatchKey, object]
    inside: dict[DispatchKey, object]
    fake: Callable[..., object] | None


def _make_kernels_of_composite_operators_once() -> None:
    """Let torch make a decomposition's kernels of all composite operators once, not each time.

    A decomposition brings one kernel of its own for each operator.
    """
    make = exported_program._override_composite_implicit_decomp
    made: dict[OpOverload, _Kernels] = {}

    @contextmanager
    def override(callables: dict[OpOverload, Callable[..., object]]) -> Iterator[None]:
        known = {op for op in callables if op in made and op.py_kernels == made[op].before}
        others = {op: call for op, call in callables.items() if op not in known}
        before = {op: op.py_kernels.copy() for op in others}
        with make(others):
            for op in others:
                fake = fake_impls.op_implementations_dict.get(op)
                made[op] = _Kernels(before[op], op.py_kernels.copy(), fake)
            try:
                for op in known:
                    own = {DispatchKey.CompositeImplicitAutograd: callables[op]}
                    _set_kernels(op, made[op].inside | own)
                    rule = made[op].fake
                    if rule is not None and op not in fake_impls.op_implementations_dict:
                        fake_impls.register_op_impl(op)(rule)
                yield
            finally:
                for op in known:
                    _set_kernels(op, made[op].before)
                    fake_impls._deregister_op_impl(op)

    exported_program._override_composite_implicit_decomp = override


def _set_kernels(op: OpOverload, kernels: dict[DispatchKey, object]) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)  # type: ignore[arg-type]
    op._dispatch_cache.clear()


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
