"""Let attentions share keys and values between heads, instead of repeating them.

Models with fewer heads of keys and values than of queries repeat both before each attention: eight
operators a layer, which all passes of ExecuTorch visit. ``enable_gqa=True`` replaces them.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from trt_et.graph.arguments import named_arguments
from trt_et.graph.subgraphs import copied_module

__all__ = ["share_heads"]

aten = torch.ops.aten

_ATTENTION: Final = aten.scaled_dot_product_attention.default
_RESHAPES: Final = (aten.reshape.default, aten.view.default)
_RANK: Final = 4


def share_heads(program: ExportedProgram) -> ExportedProgram:
    """Replace repeated keys and values of attentions by ``enable_gqa=True``.

    Args:
        program: As ``torch.export`` returns it; not changed.

    Returns:
        A new program; the same one if no attention takes repeated keys and values.
    """
    module = copied_module(program.graph_module)
    changed = [
        _share_heads(node)
        for node in module.graph.find_nodes(op="call_function", target=_ATTENTION)
    ]
    if not any(changed):
        return program
    module.graph.eliminate_dead_code()
    module.recompile()
    shared: ExportedProgram = program._update(module, program.graph_signature)
    return shared


def _share_heads(attention: Node) -> bool:
    named = named_arguments(attention)
    repeated = named["key"], named["value"]
    sources = [_source(each) for each in repeated]
    if named["enable_gqa"] or not all(sources):
        return False
    queries, keys, values = (each.meta["val"] for each in (named["query"], *sources))
    if keys.shape[1] != values.shape[1] or queries.dim() != _RANK:
        return False
    # A write in place between the copy of a cache and the attention would be seen by it.
    if any(_is_written_between(each, attention) for each in repeated):
        return False
    attention.args = (attention.args[0], *sources, *attention.args[3:])
    attention.kwargs = {**attention.kwargs, "enable_gqa": True}
    return True


def _source(value: Node) -> Node | None:
    """Return the tensor whose heads, dimension 1 of 4, a node repeats, each next to itself."""
    source: Any = None
    if value.target is aten.repeat_interleave.self_int:
        named = named_arguments(value)
        source = named["self"] if named["dim"] in (1, 1 - _RANK) else None
    elif value.target in _RESHAPES:
        expand: Any = value.args[0]
        if expand.target is aten.clone.default:
            expand = expand.args[0]
        unsqueeze: Any = expand.args[0] if expand.target is aten.expand.default else None
        if isinstance(unsqueeze, Node) and unsqueeze.target is aten.unsqueeze.default:
            source = unsqueeze.args[0] if unsqueeze.args[1] in (2, 1 - _RANK) else None
    return source if isinstance(source, Node) and _differ_in_heads(source, value) else None


def _differ_in_heads(source: Node, repeated: Node) -> bool:
    """Check that two tensors have the sizes of heads and of these heads repeated."""
    one, other = source.meta["val"].shape, repeated.meta["val"].shape
    return (
        len(one) == len(other) == _RANK
        and all(isinstance(sizes[1], int) for sizes in (one, other))
        and all(statically_known_true(one[dim] == other[dim]) for dim in (0, 2, 3))
    )


def _is_written_between(first: Node, last: Node) -> bool:
    while first is not last:
        first = first.next
        target = first.target
        if isinstance(target, HigherOrderOperator) or (
            isinstance(target, OpOverload) and target._schema.is_mutable
        ):
            return True
    return False
