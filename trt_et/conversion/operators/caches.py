"""Updates of KV caches that an engine can make in place.

Finds, in a partition's graph, writes of consecutive rows into a cache (``slice_scatter``, and
``index_put``, which ``index_copy`` becomes in the Edge dialect). Replaces them by ``write_rows``,
for which TensorRT has a layer, if the result is provably the same:

* the cache is an input of the engine, of shape ``[batch, heads, positions, width]`` and a float
  dtype, and nothing in the partition reads its old value. Nothing outside of it does, either:
  ``engine_program/in_place_buffers.py`` has checked that;
* the rows go to any one position, or to several that are ``start + arange(n)`` in the graph. For
  several positions of ``index_put`` the start must be a known number: from a negative start they
  could go on at 0.

Positions beyond the cache are an error in eager; TensorRT writes nothing for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final, TypeGuard

import torch
from torch.fx import GraphModule, Node

from trt_et.blob.model import Alias
from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator
from trt_et.conversion.operators.indexing import count_from_zero
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.errors import BuilderError
from trt_et.graph.arguments import named_arguments
from trt_et.graph.insertion import insert_call, insert_constant
from trt_et.graph.operators import COPIES, FLOATS, INTEGERS, RESHAPES
from trt_et.graph.symbolic_shapes import same_sizes

aten = torch.ops.aten

_POSITIONS: Final = 2  # The dimension that TensorRT's layer writes along.
_RANGES: Final = (aten.arange.default, aten.arange.start, aten.arange.start_step)
_SAME: Final = COPIES | RESHAPES | {aten._to_copy.default}


def write_rows(cache: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Return the cache with ``rows`` written into each batch, from its start on.

    TensorRT's layer computes this in place. Rows that do not fit are not written.

    Args:
        cache: ``[batch, heads, positions, width]``.
        rows: ``[batch, heads, n, width]``.
        starts: int32, ``[batch]``.
    """
    batch, heads, positions, width = cache.shape
    count = rows.shape[_POSITIONS]
    offsets = torch.arange(positions, device=cache.device) - starts.unsqueeze(1)
    written = (offsets >= 0) & (offsets < count)
    where = offsets.clamp(0, count - 1)[:, None, :, None].expand(batch, heads, positions, width)
    return torch.where(written[:, None, :, None], rows.gather(_POSITIONS, where), cache)


def update_in_place(
    module: GraphModule, aliased_outputs: Sequence[InPlaceBuffer]
) -> tuple[Alias, ...]:
    """Replace updates of caches by ``write_rows`` if an engine can make them in place.

    Return the outputs that the engine will write into an input's memory, of those that may be.
    """
    results: Sequence[Any] = module.graph.output_node().args[0]  # type: ignore[assignment]
    inputs = {node.name: node for node in module.graph.nodes if node.op == "placeholder"}
    aliases = []
    for update in aliased_outputs:
        cache = inputs[update.buffer]
        value = results[int(update.value.removeprefix("output"))]
        write = _write(module, cache, value, update) if results.count(value) == 1 else None
        if write is not None:
            _replace(module, cache, value, write)
            aliases.append(Alias(update.value, update.buffer))
    module.graph.eliminate_dead_code()
    module.recompile()
    return tuple(aliases)


@dataclass
class _Start:
    """The first position: a number, and tensors of one element to be added to it."""

    number: int = 0
    tensors: list[Node] = field(default_factory=list)


@dataclass
class _Write:
    """One run of rows, and whether a negative start counts from the end."""

    rows: Node
    start: _Start
    from_end: bool = False


def _write(module: GraphModule, cache: Node, value: Node, update: InPlaceBuffer) -> _Write | None:
    """Return the rows that a node writes, if they are a run and nothing else uses the cache."""
    if not _is_cache(cache.meta.get("val")) or value.op != "call_function":
        return None
    if not value.args or value.args[0] is not cache:
        return None
    if value.target is aten.index_put.default:
        return _of_index_put(module, cache, value, update)
    if value.target is aten.slice_scatter.default:
        return _of_slice_scatter(cache, value)
    return None


def _is_cache(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dim() == 4
        and value.dtype in FLOATS
        and all(isinstance(size, int) for size in value.shape)
    )


def _of_index_put(
    module: GraphModule, cache: Node, value: Node, update: InPlaceBuffer
) -> _Write | None:
    given = named_arguments(value)
    indices, rows = given["indices"], given["values"]
    if given["accumulate"] or set(cache.users) != {value} or not isinstance(rows, Node):
        return None
    if len(indices) != _POSITIONS + 1 or indices[:_POSITIONS] != [None] * _POSITIONS:
        return None
    index = indices[_POSITIONS]
    where = index.meta["val"]
    batch, heads, _, width = cache.meta["val"].shape
    if where.dtype not in INTEGERS or where.dim() != 1:
        return None
    if rows.meta["val"].dtype is not cache.meta["val"].dtype:
        return None
    if not same_sizes(_shape(rows), [batch, heads, where.shape[0], width]):
        return None
    if _is_one(where):
        return _Write(rows, _Start(0, [index]), not update.refuses_negative_indices)
    start = _run(module, index, where.shape[0])
    if start is None:
        return None
    known = not start.tensors and start.number >= 0
    return _Write(rows, start) if known or update.refuses_negative_indices else None


def _of_slice_scatter(cache: Node, value: Node) -> _Write | None:
    given = named_arguments(value)
    rows, start = given["src"], given["start"]
    if given["dim"] not in (_POSITIONS, _POSITIONS - 4) or given["step"] != 1:
        return None
    if not isinstance(start, int | None) or not isinstance(rows, Node):
        return None
    users = {value}
    if rows.target is aten.copy.default and set(rows.users) == {value}:
        # ``cache[:, :, a:b] = rows``: the slice that is copied over gives its shape only.
        target, source = rows.args[:2]
        if isinstance(target, Node) and set(target.users) == {rows}:
            users.add(target)
        if not isinstance(source, Node) or not same_sizes(_shape(source), _shape(rows)):
            return None
        rows = source
    if not set(cache.users) <= users or rows.meta["val"].dtype is not cache.meta["val"].dtype:
        return None
    first, _, _ = slice(start, None).indices(cache.meta["val"].shape[_POSITIONS])
    return _Write(rows, _Start(first))


def _shape(node: Node) -> Sequence[Any]:
    shape: Sequence[Any] = node.meta["val"].shape
    return shape


def _is_integer(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.dtype in INTEGERS


def _is_one(value: torch.Tensor) -> bool:
    """Check whether a tensor surely has one element; reading its ``numel()`` would guard."""
    return same_sizes(value.shape, [1] * value.dim())


def _run(module: GraphModule, index: Node, count: int | torch.SymInt) -> _Start | None:
    """Return the start of indices that are provably ``start + arange(count)``, or else None."""
    value = index.meta.get("val")
    if not _is_integer(value) or not same_sizes(value.shape, [count]):
        return None
    if index.op == "get_attr":
        numbers = getattr(module, str(index.target)).tolist()
        first = numbers[0] if numbers else 0
        return _Start(first) if numbers == list(range(first, first + len(numbers))) else None
    if index.target in _RANGES:
        given = named_arguments(index)
        first = given.get("start", 0)
        return _Start(first) if type(first) is int and given.get("step", 1) == 1 else None
    if index.target in _SAME and isinstance(index.args[0], Node):
        return _run(module, index.args[0], count)
    if index.target is aten.add.Tensor and index.kwargs.get("alpha", 1) == 1:
        for one, other in (index.args, index.args[::-1]):
            start = _run(module, one, count) if isinstance(one, Node) else None
            if start is not None and _add(module, start, other):
                return start
    return None


def _add(module: GraphModule, start: _Start, other: object) -> bool:
    """Add a tensor of one number, as the Edge dialect has them; return False for any other."""
    value = other.meta.get("val") if isinstance(other, Node) else None
    if not _is_integer(value) or not _is_one(value):
        return False
    tensor: Any = other
    while tensor.target in _SAME and tensor.args[0].meta["val"].dtype in INTEGERS:
        tensor = tensor.args[0]
    if tensor.op == "get_attr":
        start.number += int(getattr(module, str(tensor.target)).item())
    else:
        start.tensors.append(tensor)
    return True


def _replace(module: GraphModule, cache: Node, value: Node, write: _Write) -> None:
    batch = cache.meta["val"].shape[0]
    start = _start_tensor(cache, value, write)
    start = insert_call(value, aten._to_copy.default, start, dtype=torch.int32)
    if batch > 1:
        start = insert_call(value, aten.expand.default, start, [batch])
    with module.graph.inserting_before(value):
        new = module.graph.call_function(write_rows, (cache, write.rows, start))
    new.meta = dict(value.meta)
    value.replace_all_uses_with(new)
    module.graph.erase_node(value)


def _start_tensor(cache: Node, value: Node, write: _Write) -> Node:
    """Return the start as a tensor of shape ``[1]``."""
    number, tensors = write.start.number, write.start.tensors
    call = partial(insert_call, value)
    if tensors:
        start = reduce(
            partial(call, aten.add.Tensor),
            [call(aten.reshape.default, tensor, [1]) for tensor in tensors],
        )
        start = call(aten.add.Tensor, start, number) if number else start
    else:
        start = insert_constant(value, f"_start_{value.name}", torch.tensor([number]))
    if write.from_end:
        start = count_from_zero(value, start, cache.meta["val"].shape[_POSITIONS])
    return start


def has_cache_update_layer() -> bool:
    """Check whether this TensorRT has the layer: 10.15 or later, and TensorRT-RTX."""
    import tensorrt as trt

    return hasattr(trt.INetworkDefinition, "add_kv_cache_update")


def add_cache_update(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``write_rows``, whose cache is an input of the network.

    Raises:
        BuilderError: TensorRT refuses the layer.
    """
    cache, rows, starts = (
        layers.tensor(argument, name)
        for name, argument in zip(("cache", "rows", "starts"), args, strict=True)
    )
    layer = layers.net.add_kv_cache_update(cache, rows, starts, layers.trt.KVCacheMode.LINEAR)
    if layer is None:
        raise BuilderError(
            f"TensorRT {layers.trt.__version__} refuses the update of a KV cache at "
            f"{layers.node.name}"
        )
    return layers.result(layer, "cache_update")


def check_cache_updates(network: Any, aliases: Collection[Alias]) -> None:  # noqa: ANN401
    """Check that a ``trt.INetworkDefinition`` writes exactly the declared inputs in place.

    A release of Torch-TensorRT that adds such layers itself does not know whether the program needs
    the old value.

    Raises:
        BuilderError: The network writes other inputs in place.
    """
    if not has_cache_update_layer():
        return
    import tensorrt as trt

    layers = (network.get_layer(index) for index in range(network.num_layers))
    updated = {
        (layer.get_output(0).name, layer.get_input(0).name)
        for layer in layers
        if layer.type == trt.LayerType.KV_CACHE_UPDATE
    }
    declared = {(alias.output, alias.input) for alias in aliases}
    if updated != declared:
        raise BuilderError(
            f"the network updates {sorted(updated)} in place; expected {sorted(declared)}. Install "
            "a version of Torch-TensorRT that trt-et supports"
        )


KV_CACHE: Final = Operator("kv_cache", (write_rows,), add_layer=add_cache_update)
