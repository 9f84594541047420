"""Makes the tensors at a partition's boundary contiguous, and describes them as bindings."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from executorch.exir.tensor import dim_order_from_stride
from torch.fx import Graph, Node

from trt_et.blob.model import Binding
from trt_et.engine_program.optimization_profiles import OptimizationProfile
from trt_et.engine_program.program import DTYPE_NAMES, ProfileShapes, Shape
from trt_et.errors import PartitionError
from trt_et.graph.insertion import insert_call
from trt_et.graph.symbolic_shapes import dynamic_sizes, shape_range

_log = logging.getLogger(__name__)

aten = torch.ops.aten

_CONTIGUOUS: Final[dict[str, Any]] = {"memory_format": torch.contiguous_format}


def contiguous_boundary(
    graph: Graph, users: Collection[str], partition: str, profiles: Sequence[OptimizationProfile]
) -> tuple[tuple[Binding, ...], tuple[Binding, ...], tuple[ProfileShapes, ...]]:
    """Make the inputs, the constants and the outputs of a partition's graph contiguous.

    Args:
        graph: Changed: it permutes inputs and outputs that are not contiguous.
        users: The names of the placeholders that are inputs; the others are constants.
        partition: The partition's name, for messages.
        profiles: The requested optimization profiles.

    Returns:
        The bindings of the inputs and of the outputs, and for each profile the shapes of the
        dynamic inputs, by binding name.

    Raises:
        PartitionError: An input or an output is no tensor, or has a dtype that no engine takes.
    """
    placeholders = graph.find_nodes(op="placeholder")
    given = [node for node in placeholders if node.name in users]
    inputs = tuple(
        _contiguous_input(node, f"input{index}", partition, profiles)
        for index, node in enumerate(given)
    )
    for node in placeholders:
        value = node.meta.get("val")
        if node not in given and isinstance(value, torch.Tensor):
            node.meta["val"] = _dense(value)
    shapes = {
        binding.name: node.meta["val"].shape
        for binding, node in zip(inputs, given, strict=True)
        if binding.is_dynamic
    }
    tuned = tuple(
        {name: profile_shapes(sizes, profile) for name, sizes in shapes.items()}
        for profile in profiles
    )
    return inputs, _contiguous_outputs(graph, partition, profiles), tuned


def _contiguous_input(
    node: Node, name: str, partition: str, profiles: Sequence[OptimizationProfile]
) -> Binding:
    """Return an input's binding; permute the input in the graph if it is not contiguous."""
    value = _boundary_tensor(node, partition, "input")
    order = _dim_order(value)
    binding = make_binding(name, value, order, profiles, is_input=True)
    _warn_of_empty(node, partition)
    if order is not None:
        node.meta["val"] = value.permute(order)
        after, inverse = node.next, [order.index(dim) for dim in range(len(order))]
        view = insert_call(after, aten.permute.default, node, inverse)
        dense = insert_call(after, aten.clone.default, view, **_CONTIGUOUS)
        node.replace_all_uses_with(dense, delete_user_cb=lambda user: user is not view)
    return binding


def _warn_of_empty(node: Node, partition: str) -> None:
    for dim, size in dynamic_sizes(node):
        if shape_range(size)[0] == 0:
            _log.warning(
                "partition %s: dimension %d of its input %s is %s, which the exported range lets "
                "be 0; an engine takes no empty tensor, and such a call is an error. Export with "
                "a larger smallest size (Dim(..., min=...)), or leave the operators at this tensor "
                "to the CPU (excluded_ops=...)",
                *(partition, dim, node.name, size),
            )


def contiguous_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return contiguous tensors; contiguous ones are not copied.

    A channels_last model has other weights, but kernels and engines need one layout.
    """
    return {name: _contiguous_value(value) for name, value in values.items()}


def _contiguous_value(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, torch.nn.Parameter):
        # A builder that traces would otherwise track and store gradients.
        return torch.nn.Parameter(_dense(value.detach()), requires_grad=False)
    return _dense(value) if isinstance(value, torch.Tensor) else value


def _dense(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor in row-major order; the tensor itself if its strides are row-major.

    A channels_last weight of a 1x1 convolution is contiguous, but has channels_last strides, by
    which ExecuTorch chooses the dim order.
    """
    dense = value.contiguous()
    strides = torch.empty(value.shape, device="meta").stride()
    return dense if dense.stride() == strides else dense.as_strided(dense.shape, strides)


def _contiguous_outputs(
    graph: Graph, partition: str, profiles: Sequence[OptimizationProfile]
) -> tuple[Binding, ...]:
    """Return the outputs' bindings; permute outputs that are not contiguous in the graph."""
    output = graph.output_node()
    results: Sequence[object] = output.args[0]  # type: ignore[assignment]
    bindings, args = [], []
    for index, result in enumerate(results):
        if not isinstance(result, Node):
            raise PartitionError(
                f"partition {partition}: output {index} is {result!r}, not a tensor; exclude the "
                "node that produces it (excluded_ops=...)"
            )
        value = _boundary_tensor(result, partition, "output")
        order = _dim_order(value)
        bindings.append(make_binding(f"output{index}", value, order, profiles, is_input=False))
        if order is not None:
            view = insert_call(output, aten.permute.default, result, list(order))
            result = insert_call(output, aten.clone.default, view, **_CONTIGUOUS)
        args.append(result)
    output.args = (tuple(args),)
    return tuple(bindings)


def _boundary_tensor(node: Node, partition: str, what: str) -> torch.Tensor:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise PartitionError(
            f"partition {partition}: {what} {node.name} is {type(value).__name__}, not a tensor; "
            "leave the operators at it to the CPU (excluded_ops=...)"
        )
    if value.dtype not in DTYPE_NAMES:
        raise PartitionError(
            f"partition {partition}: {what} {node.name} has dtype {value.dtype}; an engine takes "
            f"{', '.join(sorted(DTYPE_NAMES.values()))}. Leave the operators at it to the CPU "
            "(excluded_ops=...)"
        )
    return value


def _dim_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return the ExecuTorch dim order of a tensor; None if it is contiguous."""
    order = tuple(int(dim) for dim in dim_order_from_stride(value.stride()))
    return None if order == tuple(range(value.dim())) else order


def make_binding(
    name: str,
    value: torch.Tensor,
    order: tuple[int, ...] | None = None,
    profiles: Sequence[OptimizationProfile] = (),
    *,
    is_input: bool,
) -> Binding:
    """Describe a tensor at the boundary, whose sizes may be symbolic.

    Without a dim order it is contiguous; without profiles it has the exported ranges.
    """
    sizes = [value.shape[dim] for dim in (order or range(value.dim()))]
    low, opt, high = profile_shapes(sizes)
    shape = tuple(small if small == large else -1 for small, large in zip(low, high, strict=True))
    binding = Binding(name, DTYPE_NAMES[value.dtype], shape, is_input, dim_order=order)
    if -1 not in shape:
        return binding
    if profiles:
        lows, opts, highs = zip(
            *(profile_shapes(sizes, profile) for profile in profiles), strict=True
        )
        low = tuple(min(each) for each in zip(*lows, strict=True))
        high = tuple(max(each) for each in zip(*highs, strict=True))
        opt = opts[0]
    if is_input:  # TensorRT would do the same, with a message about no tensor by name.
        low = tuple(
            max(least, 1) if size == -1 else least for least, size in zip(low, shape, strict=True)
        )
    return replace(binding, min_shape=low, opt_shape=opt, max_shape=high)


def profile_shapes(
    sizes: Iterable[int | torch.SymInt], profile: OptimizationProfile | None = None
) -> tuple[Shape, Shape, Shape]:
    """Return the smallest, the best tuned and the largest shape."""
    ranges = [shape_range(size, profile) for size in sizes]
    return (
        tuple(low for low, _, _ in ranges),
        tuple(opt for _, opt, _ in ranges),
        tuple(high for _, _, high in ranges),
    )
