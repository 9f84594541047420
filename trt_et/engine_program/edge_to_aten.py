"""Maps the Edge dialect back to plain ATen.

ExecuTorch's Edge dialect replaces views by ``*_copy`` operators, memory formats by
``dim_order_ops``, and wraps every operator in an ``EdgeOpOverload``. Torch-TensorRT's converters
are keyed by plain ATen overloads. ``to_aten`` rewrites one graph into the other, node by node,
with the same results; nothing is decomposed here and no vendor package is needed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch._ops import OpOverload
from torch.fx import Graph, Node

from trt_et.graph.subgraphs import copied_graph
from trt_et.graph.symbolic_shapes import is_static
from trt_et.ops.fake_quantize import FAKE_QUANTIZE, FOREIGN_NAME

AtenTarget = OpOverload | Callable[..., Any]
_Call = tuple[AtenTarget, tuple[Any, ...], dict[str, Any]]
_Rule = Callable[[Node, tuple[Any, ...], dict[str, Any]], _Call | None]

aten = torch.ops.aten


def aten_target(node: Node) -> Any:  # noqa: ANN401
    """Return the operator that a node calls, without the Edge dialect's wrapper."""
    return node.target._op if isinstance(node.target, EdgeOpOverload) else node.target


def qualified_name(node: Node) -> str:
    """Return ``namespace::name.overload`` of the operator that a node calls."""
    target = aten_target(node)
    if isinstance(target, OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    return str(getattr(target, "__name__", target))


def to_aten(source: Graph) -> tuple[Graph, dict[Node, Node]]:
    """Copy a graph, each Edge operator replaced by its plain ATen equivalent.

    Operators without an equivalent keep their unwrapped overload. Also return the new node for each
    source node; several source nodes can share one.
    """
    return copied_graph(source, _equivalent)


def _equivalent(node: Node, graph: Graph, nodes: dict[Node, Node]) -> Node | None:
    if node.op != "call_function":
        return None
    if _takes_values(node):
        # The producer of a (values, indices) pair returns the values alone.
        return nodes[node.args[0]]  # type: ignore[index]
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), nodes.__getitem__)
    target, args, kwargs = _equivalent_call(node, tuple(args), dict(kwargs))
    new = graph.create_node("call_function", target, args, kwargs, node.name)
    new.meta = dict(node.meta)
    if _is_pooling_without_indices(node):
        new.meta["val"] = node.meta["val"][0]
    return new


def _equivalent_call(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    target = aten_target(node)
    if target is operator.neg:
        # TensorRT has no negation of sizes: an assertion of TensorRT-RTX 1.5 fails.
        return operator.mul, (*args, -1), kwargs
    if target is operator.pow and args[1] == 2:
        return operator.mul, (args[0], args[0]), kwargs
    if not isinstance(target, OpOverload):
        return target, args, kwargs
    rule = _RULES.get(qualified_name(node))
    if isinstance(rule, OpOverload):
        return rule, args, kwargs
    call = rule(node, args, kwargs) if rule else None
    return call or (functional(_without_copy(target)), args, kwargs)


def functional(target: Any) -> Any:  # noqa: ANN401
    """Return the variant of an operator that writes to no argument: ``silu`` of ``silu_``.

    A program as exported still has variants that write.
    """
    if not isinstance(target, OpOverload) or not target._schema.is_mutable:
        return target
    namespace, _, name = target._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    return getattr(packet, target._overloadname, target)


def _without_copy(target: OpOverload) -> OpOverload:
    """Map ``aten.permute_copy.default`` to ``aten.permute.default`` if both have one schema."""
    namespace, _, name = target._schema.name.partition("::")
    stem = name.removesuffix("_copy")
    if namespace != "aten" or stem == name or name in ("_to_copy", "as_strided_copy"):
        return target
    packet = getattr(aten, stem, None)
    view = getattr(packet, target._overloadname, None)
    if view is None:
        return target
    names = [a.name for a in view._schema.arguments]
    return view if names == [a.name for a in target._schema.arguments] else target


# Rules for more than a new name. Each returns None if it does not apply.


def _clone(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    # The dim order is a property of memory, not of values: see contiguous_boundary.py.
    return aten.clone.default, args[:1], {}


def _to_dtype(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    dtype = kwargs.get("dtype")
    if dtype is None:
        return aten.clone.default, args[:1], {}
    return aten._to_copy.default, args[:1], {"dtype": dtype}


def _transpose(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    value = node.args[0].meta.get("val") if isinstance(node.args[0], Node) else None
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return None
    order = list(range(value.dim()))
    first, second = args[1] % value.dim(), args[2] % value.dim()
    order[first], order[second] = order[second], order[first]
    return aten.permute.default, (args[0], order), {}


def _logical(target: OpOverload) -> _Rule:
    def rule(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
        tensors = [a.meta.get("val") for a in node.args if isinstance(a, Node)]
        is_bool = [isinstance(t, torch.Tensor) and t.dtype is torch.bool for t in tensors]
        if len(tensors) != len(node.args) or not all(is_bool):
            return None
        return target, args, kwargs

    return rule


def _full_like(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not is_static(node):
        return None
    return aten.full.default, (list(value.shape), args[1]), {"dtype": value.dtype}


def _max_pool(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    if not _is_pooling_without_indices(node):
        return None
    return aten.max_pool2d.default, args, kwargs


def _sort(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    # Torch-TensorRT's validator and converter take both arguments for given.
    dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    descending = args[2] if len(args) > 2 else kwargs.get("descending", False)
    return aten.sort.default, (args[0], dim, descending), {}


def _extreme(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    """Name all dimensions: torch's ONNX exporter takes none of them for given."""
    value = node.args[0].meta.get("val") if isinstance(node.args[0], Node) else None
    given = args[1] if len(args) > 1 else kwargs.get("dim", ())
    if given or not isinstance(value, torch.Tensor) or value.dim() == 0:
        return None
    target = aten_target(node)
    keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
    assert isinstance(target, OpOverload)
    return target, (args[0], list(range(value.dim())), keepdim), {}


def _is_pooling_without_indices(node: Node) -> bool:
    return aten_target(node) is aten.max_pool2d_with_indices.default and all(
        user.target is operator.getitem and user.args[1] == 0 for user in node.users
    )


def _takes_values(node: Node) -> bool:
    """Return whether a node is the ``getitem`` of the values of a pooling without indices."""
    producer = node.args[0] if node.target is operator.getitem else None
    return isinstance(producer, Node) and _is_pooling_without_indices(producer)


# Another operator of the same arguments, or a rule.
_RULES: Final[dict[str, OpOverload | _Rule]] = {
    "dim_order_ops::_clone_dim_order.default": _clone,
    "dim_order_ops::_to_dim_order_copy.default": _to_dtype,
    "aten::alias_copy.default": _clone,
    "aten::detach_copy.default": _clone,
    "aten::lift_fresh_copy.default": _clone,
    # view() would insist on strides; the result of the copy variant has its own memory anyway.
    "aten::view_copy.default": aten.reshape.default,
    "aten::_unsafe_view.default": aten.reshape.default,
    "aten::transpose_copy.int": _transpose,
    "aten::bitwise_and.Tensor": _logical(aten.logical_and.default),
    "aten::bitwise_or.Tensor": _logical(aten.logical_or.default),
    "aten::bitwise_xor.Tensor": _logical(aten.logical_xor.default),
    "aten::bitwise_not.default": _logical(aten.logical_not.default),
    "aten::full_like.default": _full_like,
    "aten::sort.default": _sort,
    "aten::amax.default": _extreme,
    "aten::amin.default": _extreme,
    "aten::max_pool2d_with_indices.default": _max_pool,
    f"{FOREIGN_NAME}.default": FAKE_QUANTIZE,
}
