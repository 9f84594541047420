"""Let attentions share keys and values between heads, instead of repeating them.

Models with fewer heads of keys and values than of queries repeat both before each attention: eight
operators a layer, which all passes of ExecuTorch visit. ``enable_gqa=True`` replaces them.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.arguments import is_written_between, named_arguments
from trt_et.graph.operators import ATTENTION, RESHAPES
from trt_et.graph.subgraphs import edited
from trt_et.graph.symbolic_shapes import same_sizes

aten = torch.ops.aten

_RANK: Final = 4


def share_heads(program: ExportedProgram) -> ExportedProgram:
    """Replace repeated keys and values of attentions by ``enable_gqa=True``."""
    if not any(map(_shared, program.graph.find_nodes(op="call_function", target=ATTENTION))):
        return program
    return edited(program, _share)


def _share(graph: Graph) -> None:
    for attention in graph.find_nodes(op="call_function", target=ATTENTION):
        if shared := _shared(attention):
            attention.args = (attention.args[0], *shared, *attention.args[3:])
            attention.kwargs = {**attention.kwargs, "enable_gqa": True}
    graph.eliminate_dead_code()


def _shared(attention: Node) -> list[Node]:
    """Return keys and values with fewer heads that give the same result; none if there are none."""
    named = named_arguments(attention)
    repeated = [_repeated(named[name]) for name in ("key", "value")]
    if named["enable_gqa"] or len(attention.args) < _RANK - 1 or None in repeated:
        return []
    sources, copies = zip(*filter(None, repeated), strict=True)
    shapes = [node.meta["val"].shape for node in sources]
    heads = [named[name].meta["val"].shape[-_RANK + 1] for name in ("query", "key", "value")]
    # A write in place between the copy of a cache and the attention would be seen by it.
    if (
        named["query"].meta["val"].dim() != _RANK
        or len(set(heads)) > 1
        or shapes[0][1] != shapes[1][1]
        or any(is_written_between(copy, attention) for copy in copies)
    ):
        return []
    return list(sources)


def _repeated(value: Node) -> tuple[Node, Node] | None:
    """Return the tensor whose heads, dimension 1 of 4, a node repeats, and the copying node."""
    if value.target is aten.repeat_interleave.self_int:
        named = named_arguments(value)
        source: Any = named["self"]
        is_repeated = named["dim"] in (1, 1 - _RANK) and isinstance(named["repeats"], int)
        return (source, value) if is_repeated and source.meta["val"].dim() == _RANK else None
    if value.target not in RESHAPES:
        return None
    expand: Any = value.args[0]
    copied = expand if expand.target is aten.clone.default else value
    expand = expand.args[0] if copied is expand else expand
    if expand.target is not aten.expand.default:
        return None
    unsqueeze: Any = expand.args[0]
    if unsqueeze.target is not aten.unsqueeze.default:
        return None
    source = unsqueeze.args[0]
    shape, wide = source.meta["val"].shape, expand.meta["val"].shape
    if len(wide) != _RANK + 1 or not all(isinstance(size, int) for size in wide[1:3]):
        return None
    expected = (*shape[:2], wide[2], *shape[2:])
    if unsqueeze.args[1] not in (2, 1 - _RANK) or not same_sizes(wide, expected):
        return None
    merged = (shape[0], shape[1] * wide[2], *shape[2:])
    return (source, copied) if same_sizes(value.meta["val"].shape, merged) else None
