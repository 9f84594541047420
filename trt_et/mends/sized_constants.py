"""Computes constants whose sizes depend on their values: ``edges[:, edges[0] != edges[1]]``.

torch.export gives such a size a symbol, although the constant is known. A retrace asks for its
value, and ends with a guard on a data-dependent expression.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node, map_arg
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from trt_et.graph.arguments import written_nodes
from trt_et.graph.insertion import compute_value
from trt_et.graph.program_editor import ProgramEditor

aten = torch.ops.aten

_ASSERTIONS: Final = (
    *(aten._assert_scalar.default, aten._assert_tensor_metadata.default),
    *(aten.sym_constrain_range_for_size.default, aten.sym_constrain_range.default),
)


def compute_sized_constants(program: ExportedProgram) -> ExportedProgram:
    """Replace constants of data-dependent sizes by their values, and the sizes by numbers."""
    if not any(map(_symbols, program.graph.nodes)):
        return program
    editor = ProgramEditor(program, "sized")
    sized = _sized(editor)
    if not sized or any(user.op == "output" for node in sized for user in node.users):
        return program
    symbols = {symbol for node in sized for symbol in _symbols(node)}
    values: dict[Node, Any] = dict(editor.values)
    numbers: dict[Node, Any] = {}
    for node in sized:
        if node.target not in _ASSERTIONS and any(user not in sized for user in node.users):
            value = _value(node, values)
            if isinstance(value, torch.Tensor):
                node.replace_all_uses_with(
                    editor.add_constant(value), delete_user_cb=lambda user: user not in sized
                )
            else:
                numbers[node] = value
    for node in list(editor.graph.nodes):
        if node.op != "call_function" or node in sized:
            continue
        _use_numbers(node, numbers)
        if symbols.isdisjoint(_symbols(node)) and node.target not in _ASSERTIONS:
            continue
        if node.target in _ASSERTIONS:
            if not node.all_input_nodes:
                editor.graph.erase_node(node)
            continue
        compute_value(node, node)
        if isinstance(node.meta["val"], int | float):
            numbers[node] = node.meta["val"]
    for node in reversed(list(editor.graph.nodes)):
        if (node in sized or node in numbers) and not node.users:
            editor.graph.erase_node(node)
    return editor.program()


def _sized(editor: ProgramEditor) -> dict[Node, None]:
    """Return the calls that depend on constants alone, and on a size of unknown value."""
    written = written_nodes(editor.graph)
    known: set[Node] = set(editor.values)
    sized: dict[Node, None] = {}
    for node in editor.graph.nodes:
        if node.op == "call_function" and node not in written and _is_computable(node, known):
            known.add(node)
            if _symbols(node) or any(source in sized for source in node.all_input_nodes):
                sized[node] = None
    return sized


def _is_computable(node: Node, known: Collection[Node]) -> bool:
    target = node.target
    if not all(source in known for source in node.all_input_nodes):
        return False
    if not isinstance(target, OpOverload):
        return getattr(target, "__module__", "") in ("_operator", "math", "torch")
    return (
        target.namespace == "aten"
        and (not target._schema.is_mutable or target in _ASSERTIONS)
        and torch.Tag.nondeterministic_seeded not in target.tags
        and "empty" not in target._schema.name
    )


def _symbols(node: Node) -> set[Any]:
    leaves = tree_leaves(node.meta.get("val"))
    kinds = torch.Tensor | torch.SymInt | torch.SymBool | torch.SymFloat
    return {s for leaf in leaves if isinstance(leaf, kinds) for s in free_unbacked_symbols(leaf)}


def _value(node: Node, values: dict[Node, Any]) -> Any:  # noqa: ANN401
    if node not in values:
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda each: _value(each, values))
        with torch.no_grad():
            values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
    return values[node]


def _use_numbers(node: Node, numbers: Mapping[Node, Any]) -> None:
    if any(source in numbers for source in node.all_input_nodes):
        node.args, node.kwargs = map_arg(
            (node.args, node.kwargs), lambda each: numbers.get(each, each)
        )
