"""Computes constants at the export: once for both roads, and for the CPU.

``torch.eye`` compares uint8 numbers, ``torch.linspace`` and many rotary frequencies are float64, a
mask may be a buffer of uint8. Their operators would stay on the CPU, which computes the same
numbers at each call. Engines of the ONNX road would compute the others at each call too. Those that
would make the program larger by more than a few MB stay operators, and so do weights that are only
moved: an engine's builder computes them.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node, map_arg
from torch.utils._pytree import tree_leaves

from trt_et.graph.arguments import named_arguments, writes_in_place, written_nodes
from trt_et.graph.insertion import insert_call
from trt_et.graph.operators import FLOATS
from trt_et.graph.program_editor import ProgramEditor
from trt_et.partition.unsupported_values import DTYPES
from trt_et.passes.position_tables import insert_tables

aten = torch.ops.aten

# torch computes the first three in uint8 or float64, whatever the dtype of the result is. The last
# becomes the other, which ExecuTorch does not know.
_OTHERS: Final = (
    *(aten.eye, aten.linspace, aten.logspace),
    *(aten.as_strided_scatter, aten.fill_diagonal_),
)
# They cost nothing in an engine, and what they expand stays small.
_VIEWS: Final = (
    *(aten.view, aten.reshape, aten._unsafe_view, aten.unsqueeze, aten.squeeze, aten.expand),
    *(aten.expand_as, aten.alias, aten.detach, aten.detach_, aten.lift_fresh_copy),
)
# A weight that is only moved stays a weight, which several methods may share.
_MOVES: Final = (
    *(aten.to, aten._to_copy, aten.type_as, aten.clone, aten.contiguous, aten.cat, aten.stack),
    *(aten.permute, aten.t, aten.transpose, aten.numpy_T, aten.mT, aten.movedim, aten.flatten),
    *(aten.unflatten, aten.slice, aten.select, aten.narrow, aten.split, aten.split_with_sizes),
    *(aten.chunk, aten.unbind, aten.repeat, operator.getitem),
)
_MOST_BYTES: Final = 4 << 20  # Of a constant, beyond what it replaces.
_MOST_BYTES_ON_THE_WAY: Final = 1 << 28
_CHECK: Final = aten._assert_tensor_metadata.default


def fold_constants(program: ExportedProgram) -> ExportedProgram:
    """Replace computed constants by their values, unless they are larger than what they come from.

    Constants in other dtypes than TensorRT's are replaced whatever their size is.
    """
    return _fold_computed(_fold_odd(program))


def _fold_computed(program: ExportedProgram) -> ExportedProgram:
    editor = ProgramEditor(program, "computed")
    constants = _constants(editor.graph, editor.values)
    sources: dict[Node, set[Node]] = {}
    computed: set[Node] = set()
    huge: set[Node] = set()
    for node in constants:
        inputs = node.all_input_nodes
        sources[node] = {node}.union(*(sources[each] for each in inputs))
        if not computed.isdisjoint(inputs) or (inputs and not _only_moves(node)):
            computed.add(node)
        is_made = node.op == "call_function"
        if is_made and (not huge.isdisjoint(inputs) or _bytes(node) > _MOST_BYTES_ON_THE_WAY):
            huge.add(node)
    left: set[Node] = set()
    results: list[Node] = []
    for node in reversed([node for node in constants if node.op == "call_function"]):
        users = [user for user in node.users if user.target is not _CHECK]
        if any(user not in constants or user in left for user in users):
            is_kept = _is_view(node) or node not in computed or node in huge
            if is_kept or not _is_small(node, sources[node], constants):
                left.add(node)
            else:
                results.append(node)
    if not results:
        return program
    used = [node for node in constants if node.users]
    known: dict[Node, Any] = dict(editor.values)
    for node in results:
        node.replace_all_uses_with(editor.add_constant(_value(node, known)))
    _erase_unused(reversed(used))
    return editor.program()


def _bytes(node: Node) -> int:
    return sum(tensor.nbytes for tensor in _tensors(node))


def _only_moves(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", node.target)
    return _is_view(node) or packet in _MOVES


def _is_view(node: Node) -> bool:
    return getattr(node.target, "overloadpacket", None) in _VIEWS


def _is_small(node: Node, sources: Collection[Node], constants: Collection[Node]) -> bool:
    """Return whether a program with a constant's value is hardly larger than without."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor) or value.dtype not in DTYPES:
        return False
    replaced = sum(
        _bytes(source)
        for source in sources
        if source.op == "placeholder" and all(user in constants for user in source.users)
    )
    returned = any(user.op == "output" for user in node.users)
    return not returned and value.nbytes <= replaced + _MOST_BYTES


def _fold_odd(program: ExportedProgram) -> ExportedProgram:
    if not any(map(_is_odd, program.graph.nodes)):
        return program
    if any(_is_odd(node) and writes_in_place(node) for node in program.graph.nodes):
        program = program.run_decompositions({})
    editor = ProgramEditor(program, "constant")
    graph, values = editor.graph, editor.values
    insert_tables(graph, _constants(graph, values), written_nodes(graph))
    constants = _constants(graph, values)
    for node in [node for node in graph.nodes if node not in constants]:
        _promote(node, constants)
    constants = _constants(graph, values)
    results = _results(constants)
    if not results:
        return program
    used = [node for node in constants if node.users]
    for node in results:
        constant = editor.add_constant(_value(node, {**values}))
        node.replace_all_uses_with(constant)
    _erase_unused(reversed(used))
    return editor.program()


def _erase_unused(nodes: Iterable[Node]) -> None:
    """Erase the nodes that nothing uses but checks of dtypes."""
    for node in nodes:
        if all(user.target is _CHECK for user in node.users):
            for user in list(node.users):
                node.graph.erase_node(user)
            node.graph.erase_node(node)


def _constants(graph: Graph, values: Mapping[Node, Any]) -> dict[Node, bool]:
    """Return the nodes that depend on constants alone, and whether TensorRT lacks their dtypes."""
    written = written_nodes(graph)
    constants: dict[Node, bool] = {}
    for node in graph.nodes:
        if node not in written and _is_constant(node, constants, values):
            is_made = node.op == "call_function"
            constants[node] = _is_odd(node) or any(
                constants[each] for each in node.all_input_nodes if is_made
            )
    return constants


def _is_constant(node: Node, constants: Collection[Node], values: Mapping[Node, Any]) -> bool:
    if node.op == "placeholder":
        return node in values
    sizes = [size for tensor in _tensors(node) for size in tensor.shape]
    return (
        node.op == "call_function"
        and bool(sizes or _tensors(node))
        and all(isinstance(size, int) for size in sizes)
        and all(source in constants for source in node.all_input_nodes)
        and all(tensor.device.type == "cpu" for tensor in _tensors(node))
        and (node.target is operator.getitem or _is_pure(node.target))
        and not _widens_weight(node)
    )


def _is_pure(target: object) -> bool:
    return (
        isinstance(target, OpOverload)
        and target.namespace == "aten"
        and (not target._schema.is_mutable or target is aten.detach_.default)
        and torch.Tag.nondeterministic_seeded not in target.tags
        and "empty" not in target._schema.name
    )


def _widens_weight(node: Node) -> bool:
    """Return whether a node makes floats of a weight of 8 bits, which keep it small."""
    return all(tensor.dtype in FLOATS for tensor in _tensors(node)) and any(
        tensor.dtype.itemsize == 1 and tensor.dtype.is_signed and _has_weight(source)
        for source in node.all_input_nodes
        for tensor in _tensors(source)
    )


def _has_weight(node: Node) -> bool:
    return node.op == "placeholder" or any(map(_has_weight, node.all_input_nodes))


def _tensors(node: Node) -> list[torch.Tensor]:
    leaves = tree_leaves(node.meta.get("val"))
    return [value for value in leaves if isinstance(value, torch.Tensor)]


def _is_odd(node: Node) -> bool:
    """Return whether a node is computed in a dtype that TensorRT does not have."""
    is_other = isinstance(node.target, OpOverload) and node.target.overloadpacket in _OTHERS
    return is_other or any(tensor.dtype not in DTYPES for tensor in _tensors(node))


def _promote(node: Node, constants: Collection[Node]) -> None:
    """Cast constants to the dtype that a call computes in, if TensorRT has only that one."""
    target = node.target
    if not isinstance(target, OpOverload) or torch.Tag.pointwise not in target.tags:
        return
    given = named_arguments(node)
    pair = [given.get("self"), given.get("other")]
    odd = [each for each in pair if isinstance(each, Node) and each in constants and _is_odd(each)]
    if not odd or None in pair:
        return
    values: Any = map_arg(pair, lambda each: each.meta["val"])
    dtype = torch.result_type(*values)
    if dtype in DTYPES:
        for each in odd:
            cast = insert_call(node, aten._to_copy.default, each, dtype=dtype)
            node.replace_input_with(each, cast)


def _results(constants: Mapping[Node, bool]) -> list[Node]:
    """Return the constants in TensorRT's dtypes that need others, and that a program uses."""
    return [
        node
        for node, is_odd in constants.items()
        if is_odd
        and node.op == "call_function"
        and isinstance(node.meta["val"], torch.Tensor)
        and node.meta["val"].dtype in DTYPES
        and all(user.op != "output" for user in node.users)
        and any(user not in constants and user.target is not _CHECK for user in node.users)
    ]


def _value(node: Node, known: dict[Node, Any]) -> Any:  # noqa: ANN401
    """Compute a constant; ``known`` has the values of others, and gets those on the way."""
    if node not in known:
        args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda each: _value(each, known))
        target: Any = node.target
        with torch.no_grad():
            known[node] = target(*args, **kwargs)
    return known[node]
