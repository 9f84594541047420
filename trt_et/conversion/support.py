"""Torch-TensorRT's converters: which operators of plain ATen they take."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from trt_et.builders.base import BuildOptions
from trt_et.conversion.diagonals import diagonal
from trt_et.conversion.extrema import max_with_places, min_with_places
from trt_et.conversion.rewrites.adaptive_pool_and_resize import ADAPTIVE_AVERAGES
from trt_et.conversion.rewrites.embedding_bag import EMBEDDING_BAGS, embedding_bag
from trt_et.conversion.rewrites.index_put import puts_by_mask
from trt_et.conversion.rewrites.log_softmax import log1p
from trt_et.conversion.rewrites.pooling import is_written_out
from trt_et.conversion.rewrites.scatter_reduce import SCATTERED_SUMS, adds, refuse_sum
from trt_et.conversion.torch_tensorrt_import import torch_tensorrt, without_gpu
from trt_et.errors import OptionError

__all__ = [
    "convertible_operators",
    "decompose",
    "decomposed_operators",
    "has_own_converter",
    "make_refusal",
    "make_settings",
]

# Above this, softplus is its argument as far as float32 can tell.
_SOFTPLUS_THRESHOLD: Final = 15

_NEAREST: Final = (
    torch.ops.aten.upsample_nearest1d.vec,
    torch.ops.aten.upsample_nearest2d.vec,
    torch.ops.aten.upsample_nearest3d.vec,
)
_RESIZES_BY_FACTOR: Final = (
    *_NEAREST,
    torch.ops.aten.upsample_linear1d.vec,
    torch.ops.aten.upsample_bilinear2d.vec,
    torch.ops.aten.upsample_trilinear3d.vec,
    torch.ops.aten.upsample_bicubic2d.vec,
)

# TensorRT has layers of floats for these.
_OF_FLOATS: Final = (
    *(torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.matmul.default),
    *(torch.ops.aten.addmm.default, torch.ops.aten.baddbmm.default),
    *(torch.ops.aten.linear.default, torch.ops.aten.mv.default, torch.ops.aten.dot.default),
    *(torch.ops.aten.convolution.default, torch.ops.aten.avg_pool1d.default),
    *(torch.ops.aten.avg_pool2d.default, torch.ops.aten.avg_pool3d.default),
)

# In place of converters that are wrong, or take known sizes alone.
_OWN_DECOMPOSITIONS: Final[dict[OpOverload, Callable[..., Any]]] = {
    **dict.fromkeys(EMBEDDING_BAGS, embedding_bag),
    **SCATTERED_SUMS,
    torch.ops.aten.diagonal.default: diagonal,
    torch.ops.aten.log1p.default: log1p,
    torch.ops.aten.max.dim: max_with_places,
    torch.ops.aten.min.dim: min_with_places,
}

_OF_DIMENSIONS: Final = (
    torch.ops.aten.as_strided.default,
    torch.ops.aten.argmax.default,
    torch.ops.aten.argmin.default,
)

_IMAGE_RANK: Final = 4

_ORDERS: Final = (torch.ops.aten.sort.default, torch.ops.aten.topk.default)

_log = logging.getLogger(__name__)


def _registry(settings: Any) -> Any:  # noqa: ANN401
    """The process-wide converter registry, set to ``settings`` (they leak between compilations)."""
    torch_tensorrt()
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    DYNAMO_CONVERTERS.set_compilation_settings(settings)
    return DYNAMO_CONVERTERS


def make_settings(**options: Any) -> Any:  # noqa: ANN401
    """Torch-TensorRT's ``CompilationSettings`` with these fields.

    Raises:
        OptionError: It has no such field.
    """
    trt = torch_tensorrt()
    from torch_tensorrt.dynamo._settings import CompilationSettings

    known = {field.name for field in fields(CompilationSettings)}
    unknown = sorted(set(options) - known)
    if unknown:
        close = get_close_matches(unknown[0], known, n=3)
        raise OptionError(
            f"{unknown[0]!r} is no field of Torch-TensorRT's CompilationSettings"
            + (f"; did you mean {' or '.join(close)}?" if close else "")
        )
    # Its default timing cache is a file in /tmp that anybody may have written.
    chosen = {
        "min_block_size": 1,
        "device": trt.Device(gpu_id=0),
        "timing_cache_path": "",
        **options,
    }
    return CompilationSettings(**chosen)


@cache
def decomposed_operators() -> dict[OpOverload, Callable[..., Any]]:
    """Torch-TensorRT's decompositions of the operators that it has no converter for, and ours."""
    torch_tensorrt()
    from torch_tensorrt.dynamo.lowering import get_decompositions

    with without_gpu():
        table = get_decompositions()
        convertible = _registry(make_settings()).unique_targets()
    theirs = {
        op: function
        for op, function in table.items()
        if isinstance(op, OpOverload) and op not in convertible
    }
    return theirs | _OWN_DECOMPOSITIONS


def convertible_operators() -> frozenset[Any]:
    """The operators that have a converter."""
    with without_gpu():
        return frozenset(_registry(make_settings()).unique_targets())


def has_own_converter(target: object) -> bool:
    """Whether a converter of this package takes all calls of it, in place of Torch-TensorRT's."""
    if target is torch.ops.aten.gather.default:
        return True
    if target is not torch.ops.aten.cumsum.default:
        return False
    torch_tensorrt()
    from trt_et.conversion.converters.cumsum import has_cumulative_layer

    return has_cumulative_layer()


def make_refusal(options: BuildOptions) -> Callable[[Node], str | None]:
    """The function that says why the converters do not take a node of a plain ATen graph.

    Raises:
        OptionError: A setting is unknown.
    """
    with without_gpu():
        settings = make_settings(**options.settings)

    def refusal(node: Node) -> str | None:
        with without_gpu():
            if has_own_converter(node.target):
                return None
            wrong = _known_wrong(node)
            if wrong is not None:
                return wrong
            if is_written_out(node) or adds(node) or puts_by_mask(node):
                return None
            registry = _registry(settings)
            if node.target not in _OWN_DECOMPOSITIONS:
                reason = _refusal(registry, node)
                if reason is None or node.target not in decomposed_operators():
                    return reason
            return _refusal_of_decomposition(registry, node)

    return refusal


def _known_wrong(node: Node) -> str | None:
    """What a converter takes, and computes otherwise than torch, or cannot build."""
    aten = torch.ops.aten
    args: Any = node.args
    if node.target in _OF_FLOATS and not node.meta["val"].is_floating_point():
        return "TensorRT has no such layer for integers"
    if node.target is aten.convolution.default and args[6]:
        paddings = zip(args[4], args[7], strict=False)
        if any(isinstance(p, int) and isinstance(o, int) and o > p for p, o in paddings):
            return "TensorRT pads no output of a transposed convolution beyond its padding"
    if node.target in _ORDERS and torch.bool in _dtypes(node.all_input_nodes):
        return "TensorRT orders no booleans"
    sums = refuse_sum(node)
    if sums is not None:
        return sums
    if node.target in _OF_DIMENSIONS and args[0].meta["val"].dim() == 0:
        return "Torch-TensorRT cannot do it to a number without dimensions"
    if node.target is aten.grid_sampler.default and args[0].meta["val"].dim() != _IMAGE_RANK:
        return "TensorRT samples images only"
    if node.target is aten.copy.default and len({str(a.meta["val"].shape) for a in args[:2]}) > 1:
        return "Torch-TensorRT does not expand what is copied"
    if node.target is aten.softplus.default and len(args) > 2 and args[2] < _SOFTPLUS_THRESHOLD:
        return "TensorRT's softplus has no threshold"
    if node.target is aten.index_put.default and not _is_static(node):
        given = [index for index in args[1] if index is not None]
        if args[1][0] is None and len(given) > 1:
            return "its indices lie behind a dimension, and sizes are dynamic"
    if node.target in (torch.ops.aten.max_pool2d.default, torch.ops.aten.max_pool3d.default):
        shape = args[0].meta["val"].shape
        if isinstance(shape[1], torch.SymInt) and len(shape) == len(args[1]) + 2:
            return "it pools a dynamic number of channels"
    if node.target in ADAPTIVE_AVERAGES and any(size != 1 for size in args[1]):
        # A line's converter wants to know the number of lines too.
        sizes = args[0].meta["val"].shape[-max(len(args[1]), 2) :]
        if any(isinstance(size, torch.SymInt) for size in sizes):
            return "it averages dynamic sizes to a number of places"
    if node.target in _RESIZES_BY_FACTOR and args[1] is None and not _is_static(node):
        corners = node.target not in _NEAREST and args[2]
        if not corners and any(not float(factor).is_integer() for factor in args[-1]):
            return "it resizes dynamic sizes by a factor that is no whole number"
    return None


def _dtypes(nodes: Sequence[Node]) -> set[torch.dtype]:
    values = (node.meta.get("val") for node in nodes)
    return {value.dtype for value in values if isinstance(value, torch.Tensor)}


def _is_static(node: Node) -> bool:
    values = (n.meta.get("val") for n in (node, *node.all_input_nodes))
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return all(isinstance(size, int) for tensor in tensors for size in tensor.shape)


def _refusal(registry: Any, node: Node) -> str | None:  # noqa: ANN401
    wrong = _known_wrong(node)
    if wrong is not None:
        return wrong
    try:
        found = registry.get(node)
    except Exception as error:
        # A validator that stumbles (over arguments left to their defaults, say) takes nothing.
        _log.debug("the validator of %s failed on %s: %s", node.target, node, error)
        found = None
    if found is None:
        known = registry.get_unvalidated(node.target) is not None
        return (
            "Torch-TensorRT's converters do not take these arguments"
            if known
            else "Torch-TensorRT has no converter for it"
        )
    _, _, traits = found
    if traits.get("requires_output_allocator"):
        return "its output shape depends on data, which an ExecuTorch delegate cannot return"
    if traits.get("requires_native_multidevice"):
        return "it communicates between devices"
    return None


def _refusal_of_decomposition(registry: Any, node: Node) -> str | None:  # noqa: ANN401
    parts = decompose(node)
    if parts is None:
        return "Torch-TensorRT's decomposition of it does not apply here"
    for part in parts[0].graph.nodes:
        if part.op == "call_function":
            reason = _refusal(registry, part)
            if reason is not None:
                return f"its decomposition holds {part.target}: {reason}"
    return None


def decompose(node: Node) -> tuple[GraphModule, list[Node]] | None:
    """The decomposition of one node, and the nodes that its placeholders stand for."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs: list[Node] = []

    def number(argument: Node) -> Node:
        if argument not in inputs:
            inputs.append(argument)
        return argument

    torch.fx.map_arg((node.args, node.kwargs), number)
    values = [argument.meta.get("val") for argument in inputs]
    if not all(isinstance(value, torch.Tensor | torch.SymInt) for value in values):
        return None
    # A constructor has no tensor arguments; its result knows the fake mode as well.
    fakes = [v for v in (*values, node.meta.get("val")) if isinstance(v, FakeTensor)]
    mode = fakes[0].fake_mode if fakes else FakeTensorMode()

    def call(*flat: torch.Tensor | torch.SymInt) -> Any:  # noqa: ANN401
        known = dict(zip(inputs, flat, strict=True))
        args = torch.fx.map_arg(node.args, lambda n: known[n])
        kwargs = torch.fx.map_arg(node.kwargs, lambda n: known[n])
        return node.target(*args, **kwargs)  # type: ignore[operator]

    try:
        with mode:
            traced = make_fx(call, decomposition_table=decomposed_operators())(*values)
    except Exception as error:
        # Whatever it stumbles over (a tensor without dimensions, say), it does not apply.
        _log.debug("decomposing %s failed: %s", node, error)
        return None
    return traced, inputs
