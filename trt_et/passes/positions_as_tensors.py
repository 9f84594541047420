"""Keeps positions that a program reads with ``item()`` in tensors.

ExecuTorch's own language models read the start position with ``input_pos[0].item()``, check it, and
use it in ``narrow``, ``slice_scatter`` or ``arange(n) + start``. A number that depends on data
stays on the CPU, and so does each of these operators: each layer breaks an engine in two. An index
``x[i]`` with a tensor of shape [] reads its number, too, and ExecuTorch cannot retrace it, because
it may be negative. This pass uses the tensor instead of the number: slices become
``index_select``, and writes to slices become ``index_copy``. The engine then gets the position as
an input, and can write its cache in place (``conversion/operators/caches.py``).

A position is replaced only if every use of it is known, and the shape of every result is known
without it. Its checks are removed; ExecuTorch removes the checks of every program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.value_ranges import bound_sympy

from trt_et.graph.arguments import has_own_memory, named_arguments
from trt_et.graph.insertion import insert_call, insert_size
from trt_et.graph.operators import INTEGERS
from trt_et.graph.subgraphs import copied_module
from trt_et.graph.symbolic_shapes import same_sizes

aten = torch.ops.aten

_ITEMS: Final = (aten.item.default, aten._local_scalar_dense.default)
_COPIES: Final = (aten.copy.default, aten.index_select.default, aten.squeeze.dim)
_CHECKS: Final = (
    aten._assert_scalar.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)
# Operators of a tensor and a number: the operators of two tensors.
_ELEMENTWISE: Final[dict[Any, OpOverload]] = {
    getattr(getattr(aten, name), overload): getattr(aten, name).Tensor
    for name in ("add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne", "remainder")
    for overload in ("Tensor", "Scalar")
}
# Operators of two numbers: the operators of a tensor and a number or tensor.
_ARITHMETIC: Final[dict[Any, OpOverload]] = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
}
_INDICES: Final = frozenset({*INTEGERS, torch.int8, torch.int16, torch.uint8})
# Takes the arguments of a call, of which some may have been replaced, and returns its result.
_Edit = Callable[[dict[str, Any]], Node]


def keep_positions_in_tensors(program: ExportedProgram) -> ExportedProgram:
    """Replace positions that are read from tensors by these tensors."""
    if not _Positions(program.graph).have_users():
        return program
    written = {_root(each) for node in program.graph.nodes for each in _written_by(node)}
    replaced = None if None in written else _replaced(program, {each.name for each in written})
    if replaced is None or _Positions(replaced.graph).have_users():
        # A slice of a tensor that is written in place cannot become a copy.
        program = replaced or program
        replaced = _replaced(program.run_decompositions({}))
    return replaced or program


def _replaced(
    program: ExportedProgram, written: Collection[str] = frozenset()
) -> ExportedProgram | None:
    """Return the program without the positions that can be replaced; None if there are none.

    ``written`` has the names of what may share memory with tensors that are written in place.
    """
    module = copied_module(program.graph_module)
    if not _Positions(module.graph, written).replace():
        return None
    return program._update(module, program.graph_signature)


class _Positions:
    """The numbers of a graph that are computed from integers in tensors."""

    def __init__(self, graph: Graph, written: Collection[str] = frozenset()) -> None:
        # Each number, and the calls of item() that it is computed from.
        self._items: dict[Node, frozenset[Node]] = {}
        for node in graph.nodes:
            if node.target in _ITEMS and node.args[0].meta["val"].dtype in _INDICES:
                self._items[node] = frozenset([node])
            elif isinstance(node.meta.get("val"), torch.SymInt | torch.SymBool):
                items = [self._items.get(used, frozenset()) for used in node.all_input_nodes]
                if any(items):
                    self._items[node] = frozenset().union(*items)
        # By ``_value_of``: each layer of a model reads the position again.
        self._tensors: dict[Node, Node] = {}
        self._ranges: dict[tuple[Node, int | Node], Node] = {}
        self._graph = graph
        self._written = written

    def __contains__(self, value: object) -> bool:
        return value in self._items

    def have_users(self) -> bool:
        """Check whether a position is used, other than in checks of it."""
        return any(True for number in self._items for _ in self._users(number))

    def replace(self) -> bool:
        """Replace the positions whose uses are all known; return whether there are any."""
        edits = {user: self._edit(user) for number in self._items for user in self._users(number)}
        unknown: frozenset[Node] = frozenset()
        for number, items in self._items.items():
            if any(edits[user] is None for user in self._users(number)):
                unknown |= items
        # A number that is computed from several positions needs all of them.
        while any(items & unknown and not items <= unknown for items in self._items.values()):
            unknown |= frozenset().union(*(i for i in self._items.values() if i & unknown))
        replaced = [number for number, items in self._items.items() if not items & unknown]
        users = {user for number in replaced for user in self._users(number)}
        for user in [node for node in self._graph.nodes if node in users]:
            edit = edits[user]
            assert edit is not None
            arguments = named_arguments(user)
            new = edit(arguments)
            new.meta = {**user.meta, "val": new.meta["val"]}
            user.replace_all_uses_with(new)
            self._graph.erase_node(user)
            _erase_copy(arguments.get("src"))
            new.name = user.name  # The program's signature names the new values of buffers.
        for number in reversed(replaced):
            for check in list(number.users):
                self._graph.erase_node(check)
            self._graph.erase_node(number)
        return bool(users)

    def _users(self, number: Node) -> Iterator[Node]:
        for user in number.users:
            if user not in self._items and user.target not in _CHECKS:
                yield user

    def _edit(self, user: Node) -> _Edit | None:
        """Return a function that inserts operators with the same result before a node.

        None if the node is not one of the known uses of a position.
        """
        rule = _RULES.get(user.target)
        if rule is None or not isinstance(user.meta.get("val"), torch.Tensor):
            return None
        arguments = named_arguments(user)
        if self._is_written(user):
            edit = _overwrite(self, user, arguments) if user.target in _WRITES else None
            return edit or _work_on_copy(self, user, arguments)
        return rule(self, user, arguments)

    def _is_written(self, value: Any) -> bool:  # noqa: ANN401
        """Check whether a tensor may share memory with one that is written in place."""
        root = _root(value)
        return bool(self._written) and (root is None or root.name in self._written)

    def is_position(self, value: object) -> bool:
        """Check whether a value is a number that ``tensor`` can compute."""
        if not isinstance(value, Node) or value not in self._items:
            return False
        if any(self._is_written(item.args[0]) for item in self._items[value]):
            return False
        return value.target in _ITEMS or (
            value.target in _ARITHMETIC
            and all(isinstance(a, int) or self.is_position(a) for a in value.args)
        )

    def is_start(self, value: object) -> bool:
        """Check whether a value is a position that is never negative."""
        if not isinstance(value, Node) or not self.is_position(value):
            return False
        number = value.meta["val"].node
        return bool(bound_sympy(number.expr, number.shape_env.var_to_range).lower >= 0)

    def length(self, start: Node, end: object, size: int | torch.SymInt) -> int | Node | None:
        """Return the number or node with the size of a range, or None if there is none."""
        if isinstance(size, int):
            return size
        if not isinstance(end, Node) or end.target is not operator.add or start not in end.args:
            return None
        length = end.args[1] if end.args[0] is start else end.args[0]
        return self.known_length(length, size)

    def known_length(self, length: object, size: int | torch.SymInt) -> int | Node | None:
        """Return a number or node if it is surely the size, and no position."""
        if isinstance(length, Node) and length not in self._items:
            return length if statically_known_true(length.meta["val"] == size) else None
        return length if isinstance(length, int) and statically_known_true(length == size) else None

    def tensor(self, number: Node, before: Node) -> Node:
        """Return a position as a tensor of shape [], int64."""
        key = _value_of(number)
        if key not in self._tensors:
            if number.target in _ITEMS:
                value = insert_call(before, aten.reshape.default, number.args[0], [])
                value = insert_call(before, aten._to_copy.default, value, dtype=torch.int64)
            else:
                args = [self.tensor(a, before) if isinstance(a, Node) else a for a in number.args]
                if not isinstance(args[0], Node):  # A number and a tensor.
                    args[0] = insert_call(before, aten.full_like.default, args[1], args[0])
                value = insert_call(before, _ARITHMETIC[number.target], *args)
            self._tensors[key] = value
        return self._tensors[key]

    def range(self, start: Node, length: int | Node, before: Node) -> Node:
        """Return ``start``, ``start + 1``, ... as a tensor of shape [length], int64."""
        key = _value_of(start), length
        if key not in self._ranges:
            device = before.meta["val"].device
            steps = insert_call(
                before, aten.arange.default, length, dtype=torch.int64, device=device
            )
            first = self.tensor(start, before)
            self._ranges[key] = insert_call(before, aten.add.Tensor, steps, first)
        return self._ranges[key]


def _value_of(number: Node) -> Node:
    """Return the tensor of one element that a number is read from; else the number."""
    while number.target in _ITEMS or (
        number.target is aten.select.int and _is_one(number.all_input_nodes[0])
    ):
        number = number.all_input_nodes[0]
    return number


def _is_one(value: Node) -> bool:
    return all(isinstance(size, int) and size == 1 for size in value.meta["val"].shape)


def _rows(positions: _Positions, shown: Node, a: dict[str, Any]) -> tuple[Node, int | Node] | None:
    """Return start and number of the rows that a call reads or writes; None if unknown.

    ``shown`` is a tensor of these rows, ``a`` has the call's arguments.
    """
    start: Any = a.get("index", a.get("start"))
    if "index" in a:
        return (start, 1) if positions.is_position(start) else None
    if not positions.is_start(start) or a.get("step", 1) != 1:
        return None
    size = shown.meta["val"].shape[a["dim"]]
    if "length" in a:
        length = positions.known_length(a["length"], size)
    else:
        length = positions.length(start, a["end"], size)
    return None if length is None else (start, length)


def _read(positions: _Positions, user: Node, a: dict[str, Any]) -> _Edit | None:
    """``narrow``, slices and ``select``."""
    rows = _rows(positions, user, a)
    if rows is None:
        return None

    def edit(a: dict[str, Any]) -> Node:
        index = _indices(positions, rows, user, a)
        selected = insert_call(user, aten.index_select.default, a["self"], a["dim"], index)
        return insert_call(user, aten.squeeze.dim, selected, a["dim"]) if "index" in a else selected

    return edit


def _indices(
    positions: _Positions, rows: tuple[Node, int | Node], before: Node, a: dict[str, Any]
) -> Node:
    """Return the indices of rows; the one of ``select`` may count from the end."""
    index = positions.range(*rows, before)
    if "index" not in a or positions.is_start(rows[0]):
        return index
    size = insert_size(before, a["self"], a["dim"])
    from_end = insert_call(before, aten.add.Tensor, index, size)
    is_negative = insert_call(before, aten.lt.Scalar, index, 0)
    return insert_call(before, aten.where.self, is_negative, from_end, index)


def _work_on_copy(positions: _Positions, user: Node, a: dict[str, Any]) -> _Edit | None:
    """``select`` of a tensor that is written: writes go to a copy, and from there back."""
    rows, read = _rows(positions, user, a), _read(positions, user, a)
    if rows is None or read is None or "index" not in a:
        return None
    views = _views(user)
    nodes = list(user.graph.nodes)
    last = max(nodes.index(each) for view in views for each in (view, *view.users))
    writes = {
        node: [each for each in _written_by(node) if each is None or _root(each) is _root(user)]
        for node in nodes[nodes.index(user) + 1 : last + 1]
    }
    through = [node for node, written in writes.items() if any(w in views for w in written)]
    if any(writes[node] for node in nodes[:last] if node in writes and node not in through):
        return None  # The view would show it.
    dim = a["dim"] % a["self"].meta["val"].dim()

    def edit(a: dict[str, Any]) -> Node:
        copy = read(a)
        for write in through:
            after = write.next
            index = _indices(positions, rows, after, a)
            row = insert_call(after, aten.unsqueeze.default, copy, dim)
            insert_call(after, aten.index_copy_.default, a["self"], dim, index, row)
        return copy

    return edit


def _views(tensor: Node) -> list[Node]:
    """Return a tensor and the nodes whose values may share its memory."""
    views = [tensor]
    for view in views:
        views += [u for u in view.users if u.args[:1] == (view,) and not has_own_memory(u)]
    return views


def _overwrite(positions: _Positions, user: Node, a: dict[str, Any]) -> _Edit | None:
    """``narrow``, slices and ``select``, if their only use is a copy over them."""
    rows, copy = _rows(positions, user, a), _only_copy_over(user)
    if rows is None or copy is None:
        return None

    def edit(a: dict[str, Any]) -> Node:
        index, source = _indices(positions, rows, user, a), _as_rows(copy, copy.args[1], a)
        new = insert_call(copy, aten.index_copy_.default, a["self"], a["dim"], index, source)
        copy.graph.erase_node(copy)
        return new

    return edit


def _scatter(positions: _Positions, user: Node, a: dict[str, Any]) -> _Edit | None:
    """``slice_scatter`` and ``select_scatter``."""
    rows = _rows(positions, a["src"], a) if _same_dtype(a["self"], a["src"]) else None
    if rows is None:
        return None

    def edit(a: dict[str, Any]) -> Node:
        index, source = _indices(positions, rows, user, a), _as_rows(user, _written(a["src"]), a)
        return insert_call(user, aten.index_copy.default, a["self"], a["dim"], index, source)

    return edit


def _as_rows(before: Node, value: Any, a: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return the written value, with the dimension that ``select`` drops."""
    if "index" not in a:
        return value
    dim = a["dim"] % a["self"].meta["val"].dim()
    return insert_call(before, aten.unsqueeze.default, value, dim)


def _only_copy_over(view: Node) -> Node | None:
    """Return the call that copies over a slice, if it is the only use of the slice."""
    copy = next(iter(view.users), None)
    if copy is None or len(view.users) > 1 or copy.target is not aten.copy_.default or copy.users:
        return None
    source = copy.args[1]
    # index_copy_ refuses a source that shares memory with the tensor; copy_ does not.
    apart = _root(source) is not _root(view)
    return copy if copy.args[0] is view and apart and _alike(source, view) else None


def _arange(positions: _Positions, user: Node, a: dict[str, Any]) -> _Edit | None:
    start, dtype = a["start"], user.meta["val"].dtype
    if not positions.is_position(start) or a.get("step", 1) != 1 or dtype not in INTEGERS:
        return None
    length = positions.length(start, a["end"], user.meta["val"].shape[0])
    if length is None:
        return None
    return lambda a: insert_call(
        user, aten._to_copy.default, positions.range(start, length, user), dtype=dtype
    )


def _full(positions: _Positions, user: Node, a: dict[str, Any]) -> _Edit | None:
    value, size = a.get("fill_value", a.get("s")), a.get("size", [])
    if not isinstance(value, Node) or not positions.is_position(value):
        return None
    if any(number in positions for number in size):
        return None
    dtype = user.meta["val"].dtype

    def edit(a: dict[str, Any]) -> Node:
        one = insert_call(user, aten._to_copy.default, positions.tensor(value, user), dtype=dtype)
        return insert_call(user, aten.expand.default, one, size)

    return edit


def _elementwise(positions: _Positions, user: Node, a: dict[str, Any]) -> _Edit | None:
    tensors = [value for value in (a["self"], a["other"]) if not positions.is_position(value)]
    if len(tensors) != 1 or not isinstance(tensors[0], Node) or a.get("alpha", 1) != 1:
        return None
    tensor = tensors[0].meta["val"]
    # With a number, a tensor keeps its dtype; with a tensor of shape [], if it has dimensions.
    if tensor.dtype is not torch.int64 and (tensor.dtype is not torch.int32 or tensor.dim() == 0):
        return None

    def edit(a: dict[str, Any]) -> Node:
        both = (
            positions.tensor(value, user) if positions.is_position(value) else value
            for value in (a["self"], a["other"])
        )
        return insert_call(user, _ELEMENTWISE[user.target], *both)

    return edit


def _written(value: Node) -> Node:
    """Return the tensor that is copied over a slice, if it has the slice's shape and dtype.

    A write to a slice otherwise reads its old value, if only for its shape.
    """
    if value.target is not aten.copy.default:
        return value
    source: Any = value.args[1]
    return source if _alike(source, value) else value


def _erase_copy(value: object) -> None:
    """Erase a copy over a slice that nothing uses any more, and the slice."""
    while isinstance(value, Node) and not value.users and value.target in _COPIES:
        unused, value = value, value.args[0]
        unused.graph.erase_node(unused)


def _alike(one: Any, other: Node) -> bool:  # noqa: ANN401
    """Check whether two tensors surely have the same dtype and shape."""
    return _same_dtype(other, one) and same_sizes(one.meta["val"].shape, other.meta["val"].shape)


def _root(value: Any) -> Any:  # noqa: ANN401
    """Return the node that a tensor may be a view of; None if it may be a view of several.

    Views have the tensor as their first argument, except for ``broadcast_tensors`` and the like.
    """
    while isinstance(value, Node) and value.all_input_nodes and not has_own_memory(value):
        value = value.args[0] if value.args else None
    return value if isinstance(value, Node) else None


def _written_by(node: Node) -> list[Any]:
    """Return the arguments that a call may write to in place; [None] if they are unknown."""
    if isinstance(node.target, HigherOrderOperator):
        return [None]
    if not isinstance(node.target, OpOverload):
        return []
    arguments = named_arguments(node)
    written = (
        a.name for a in node.target._schema.arguments if a.alias_info and a.alias_info.is_write
    )
    return tree_leaves([arguments[name] for name in written])


def _same_dtype(one: Node, other: object) -> bool:
    return isinstance(other, Node) and one.meta["val"].dtype is other.meta["val"].dtype


_RULES: Final[dict[Any, Callable[[_Positions, Node, dict[str, Any]], _Edit | None]]] = {
    aten.narrow.default: _read,
    aten.slice.Tensor: _read,
    aten.slice_copy.Tensor: _read,
    aten.select.int: _read,
    aten.select_copy.int: _read,
    aten.slice_scatter.default: _scatter,
    aten.select_scatter.default: _scatter,
    aten.arange.start: _arange,
    aten.arange.start_step: _arange,
    aten.full.default: _full,
    aten.scalar_tensor.default: _full,
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
}
# For slices of tensors that are written in place.
_WRITES: Final = (aten.narrow.default, aten.slice.Tensor, aten.select.int)
