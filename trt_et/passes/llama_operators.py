"""Replaces the operators that ExecuTorch's ``--use_sdpa_with_kv_cache`` puts into its models.

``llama::update_cache`` writes rows into a cache ``[batch, positions, heads, width]``, and
``llama::custom_sdpa`` is attention from a position on. ExecuTorch has CPU kernels for them. Here
they become ``index_copy`` and ``scaled_dot_product_attention``, which go into engines. Quantized
caches keep their operators: TensorRT does not compute with int8.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_size
from trt_et.graph.marks import inherit_marks
from trt_et.graph.operators import FLOATS
from trt_et.graph.subgraphs import edited

aten = torch.ops.aten


def replace_llama_operators(program: ExportedProgram) -> ExportedProgram:
    """Replace updates of caches, and attention to them, by core operators."""
    if not any(_name(node) in _EDITS for node in program.graph.nodes):
        return program
    return edited(program.run_decompositions({}), _replace)


def _replace(graph: Graph) -> None:
    for node in list(graph.nodes):
        edit = _EDITS.get(_name(node))
        if edit is not None:
            edit(node)


def _name(node: Node) -> str:
    """Return the name of an operator, also of one that writes to its arguments."""
    functional = node.target is auto_functionalized_v2
    return str(node.args[0] if functional else node.target)


def _update_cache(node: Node) -> None:
    def positions(value: Node) -> Node:
        steps = _arange(node, value)
        return insert_call(node, aten.add.Tensor, steps, node.kwargs["start_pos"])

    _copy_rows(node, positions)


def _update_cache_with_indices(node: Node) -> None:
    indices: Any = node.kwargs.get("indices")
    if indices is not None and indices.meta["val"].shape[0] == 1:
        _copy_rows(node, lambda value: insert_call(node, aten.select.int, indices, 0, 0))


def _copy_rows(node: Node, positions: Callable[[Node], Node]) -> None:
    """Replace an update's functional form by a copy, if the new cache is all that is used.

    ``positions`` inserts the positions of the rows that it gets.
    """
    if node.target is not auto_functionalized_v2 or node.kwargs.get("_cache_base_index") != 0:
        return
    value: Any = node.kwargs["value"]
    bases: Any = node.kwargs["_all_bases"]
    if len(bases) != 1 or bases[0].meta["val"].dtype not in FLOATS:
        return
    picks = list(node.users)
    if any(pick.target is not operator.getitem or pick.args[1] != 1 for pick in picks):
        return
    rows = insert_call(node, aten.index_copy.default, bases[0], 1, positions(value), value)
    inherit_marks(rows, node)
    for pick in picks:
        pick.replace_all_uses_with(rows)
        node.graph.erase_node(pick)
        rows.name = pick.name  # The program's signature names the new values of buffers.
    node.graph.erase_node(node)


def _attend(node: Node) -> None:
    """Replace attention with a mask, or to all positions up to each token's."""
    given = named_arguments(node)
    mask, causal = given["attn_mask"], given["is_causal"]
    query, key = given["query"], given["key"]
    if given["drpout_p"] != 0 or (mask is None) != causal or not _is_float(query):
        return
    if mask is None:
        rows = insert_call(node, aten.add.Tensor, _arange(node, query), given["start_pos"])
        rows = insert_call(node, aten.unsqueeze.default, rows, 1)
        mask = insert_call(node, aten.le.Tensor, _arange(node, key), rows)
    elif _is_float(mask):
        mask = insert_call(node, aten._to_copy.default, mask, dtype=query.meta["val"].dtype)
    heads = [
        insert_call(node, aten.transpose.int, given[name], 1, 2)
        for name in ("query", "key", "value")
    ]
    repeats = query.meta["val"].shape[2] // key.meta["val"].shape[2]
    for index in (1, 2):
        if repeats > 1:
            repeat = aten.repeat_interleave.self_int
            heads[index] = insert_call(node, repeat, heads[index], repeats, 1)
    attention = aten.scaled_dot_product_attention.default
    result = insert_call(node, attention, *heads, mask, scale=given["scale"])
    inherit_marks(result, node)
    result = insert_call(node, aten.transpose.int, result, 1, 2)
    result = insert_call(node, aten.clone.default, result, memory_format=torch.contiguous_format)
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)
    result.name = node.name  # It may be an output of the program.


def _arange(before: Node, tensor: Node) -> Node:
    """Return the positions of a tensor of tokens, int64."""
    size, device = insert_size(before, tensor, 1), tensor.meta["val"].device
    return insert_call(before, aten.arange.default, size, dtype=torch.int64, device=device)


def _is_float(node: Node) -> bool:
    return node.meta["val"].dtype in FLOATS


_EDITS: Final[dict[str, Callable[[Node], None]]] = {
    "llama.update_cache.default": _update_cache,
    "llama.update_cache_with_indices.default": _update_cache_with_indices,
    "llama.custom_sdpa.default": _attend,
}
