"""Chooses the operators of a partition that keep float32 when the others compute in less.

The rules follow NVIDIA's autocast, for a strongly typed network:

- products of matrices, convolutions, attention and embeddings compute in the low precision;
- reductions, normalizations, softmax, exponentials, powers, and all operators that are not listed
  here keep float32, and so do values and numbers known to leave the low precision's range;
- sums of two computed tensors of one shape before a normalization keep float32: they are the
  residual stream, which each layer adds to, and which otherwise rounds in each layer;
- a normalization whose result is rounded anyway takes rounded values and gives them, since TensorRT
  computes it in float32 inside. One of tokens reads a residual stream in float32, one of images
  (group norm, instance norm) does not: U-Nets would move 1.3 times the bytes;
- pointwise operators and operators that only move numbers follow the tensors around them, so that
  no cast is inserted between two float32 operators, and state passes through unchanged.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import aten_target
from trt_et.graph.operators import (
    ACTIVATIONS,
    ATTENTION,
    MATRIX_PRODUCTS,
    PRODUCTS,
    SOFTMAX,
    VIEWS,
    names,
    short_name,
)
from trt_et.graph.symbolic_shapes import same_sizes

_ATTENTION: Final = short_name(ATTENTION)
_PRODUCTS: Final = names(PRODUCTS) | {"embedding"}
_MATRIX_PRODUCTS: Final = names(MATRIX_PRODUCTS) - {"addmm", "baddbmm"}
_NORMALIZATIONS_OF_TOKENS: Final = frozenset({"native_layer_norm", "rms_norm", "_fused_rms_norm"})
_NORMALIZATIONS: Final = (
    _NORMALIZATIONS_OF_TOKENS
    | {"native_group_norm", "instance_norm", "native_batch_norm", "_native_batch_norm_legit"}
    | {"_native_batch_norm_legit_functional"}
)
_BATCH_NORM: Final = "_native_batch_norm_legit_no_training"
_SOFTMAX: Final = names(SOFTMAX)
_ROTATIONS: Final = frozenset({"sin", "cos"})
_SUMS: Final = frozenset(
    {"sum", "cumsum", "prod", "cumprod", "var", "var_mean", "std", "linalg_vector_norm", "norm"}
)
_REDUCTIONS: Final = _SUMS | {"mean", "logsumexp"}
_KINDS: Final = {
    "written out": frozenset({"pow", "mean"}),  # A normalization of powers and means.
    "sum": _SUMS,
    "mean": _SUMS | {"mean"},
    "rotation": _ROTATIONS,
}
_POWERS: Final = frozenset(
    {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "sqrt", "rsqrt"}
    | {"reciprocal", "softplus", "log_softmax", "_log_softmax"}
)
_FACTORS: Final = frozenset({"mul", "div"})
_RESIDUAL: Final = frozenset({"add", "sub"})
_BOUNDED: Final = frozenset({"sigmoid", "tanh", "hardsigmoid", "erf"}) | _SOFTMAX | _ROTATIONS
_POINTWISE: Final = (
    frozenset({"add", "sub", "rsub", "neg", "abs", "maximum", "minimum", "clamp"})
    | {"clamp_min", "clamp_max", "where", "masked_fill", "avg_pool1d", "avg_pool2d", "avg_pool3d"}
    | {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}
    | {"_adaptive_avg_pool2d", "_adaptive_avg_pool3d"}
    | {"upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "grid_sampler"}
    | {"grid_sampler_2d", "upsample_trilinear3d", _BATCH_NORM}
    | _FACTORS
    | names(ACTIVATIONS)
)
_MOVES: Final = names(VIEWS) | (
    frozenset({"contiguous", "flatten", "unflatten", "narrow", "cat", "stack", "unbind", "chunk"})
    | {"unsafe_split", "flip", "roll", "gather", "index_select", "index", "constant_pad_nd", "pad"}
    | {"reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "tile"}
    | {"replication_pad2d", "replication_pad3d", "repeat", "pixel_shuffle", "pixel_unshuffle"}
    | {"unfold", "max_pool1d", "max_pool2d", "max_pool3d", "amax", "amin", "upsample_nearest1d"}
    | {"upsample_nearest2d", "upsample_nearest3d", "_to_copy", "slice_scatter", "select_scatter"}
    | {"index_put", "index_copy", "scatter", "copy", "diagonal", "tril", "triu", "as_strided"}
    | {"dropout"}
)
_CREATORS: Final = frozenset({"full", "full_like", "scalar_tensor", "zeros", "ones", "fill"})
# Their numbers are values; the numbers of other moves are sizes and positions.
_WITH_VALUES: Final = (_POINTWISE - {_BATCH_NORM}) | _CREATORS | {"constant_pad_nd", "pad"}
_OPERANDS: Final = 2
_MASK: Final = 3  # The index of an attention's mask among its arguments.

_BETWEEN: Final = "between float32 tensors"
_STREAM: Final = "sums before normalizations"


def float32_reasons(
    calls: Iterable[Node],
    outputs: Collection[Node],
    constants: Mapping[Node, torch.Tensor | None],
    precision: torch.dtype,
    given: Mapping[Node, str],
) -> dict[Node, str]:
    """Return the calls of a partition with a float32 result that keep it, each with the reason.

    ``constants`` has the placeholders that never change, with their values (None if unknown),
    ``given`` the calls that keep float32 for other reasons.
    """
    return _Rules(list(calls), outputs, constants, precision, given).reasons


def is_float32(node: Any) -> bool:  # noqa: ANN401
    """Return whether a node's value is a float32 tensor, or a list with one."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(each, torch.Tensor) and each.dtype == torch.float32 for each in values)


def largest_value(tensor: torch.Tensor) -> float:
    """Return the largest magnitude of a tensor's finite elements; 0 if it has none."""
    if not tensor.numel():
        return 0.0
    low, high = (float(bound) for bound in torch.aminmax(tensor.detach()))
    if math.isfinite(low) and math.isfinite(high):
        return max(abs(low), abs(high))
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def attention_masks(node: Node) -> tuple[object, ...]:
    """Return the mask of an attention; nothing for another call."""
    if _name(node) != _ATTENTION:
        return ()
    return (*node.args[_MASK : _MASK + 1], node.kwargs.get("attn_mask"))


def _name(node: Node) -> str:
    target = aten_target(node)
    if isinstance(target, OpOverload):
        return short_name(target)
    return str(getattr(target, "__name__", target))


class _Rules:
    """The rules on one partition; ``reasons`` has the result."""

    def __init__(
        self,
        calls: list[Node],
        outputs: Collection[Node],
        constants: Mapping[Node, torch.Tensor | None],
        precision: torch.dtype,
        given: Mapping[Node, str],
    ) -> None:
        self._constants = constants
        self._limits = torch.finfo(precision)
        self._precision = str(precision).removeprefix("torch.")
        self._given = given
        self._inside = set(calls)
        self._outputs = set(outputs)
        self._peaks: dict[Node, float] = {}
        self._quantized: set[Node] = set()
        self._fixed: set[Node] = set()  # Made of constants alone.
        self.reasons: dict[Node, str] = {}
        # The kinds of operators that take a result, directly or after pointwise operators:
        # normalizations, float32 operators other than those, and ``_KINDS`` of the latter.
        self._takers: defaultdict[Node, set[str]] = defaultdict(set)
        for node in reversed(calls):
            self._look_ahead(node)
        # Results in float32 that would lose their meaning in less; a softmax's results do not.
        self._wide: set[Node] = set()
        self._grown: set[Node] = set()
        for node in calls:
            self._look_back(node)

    def _look_ahead(self, node: Node) -> None:
        takers = self._takers[node]
        if node in self._outputs:
            takers.add("float32")
        for user in node.users:
            is_tensor = isinstance(user.meta.get("val"), torch.Tensor | tuple | list)
            if user not in self._inside or not is_tensor:
                continue
            name = _name(user)
            if self._follows(user):
                takers |= self._takers[user]
            elif name in _NORMALIZATIONS:
                takers.add("normalization")
            elif self._keeps(user) or name not in _PRODUCTS:
                takers.update(("float32", *(kind for kind in _KINDS if name in _KINDS[kind])))

    def _keeps(self, product: Node) -> bool:
        """Return whether a product keeps float32, as far as is known before its arguments are."""
        return product in self._given or not is_float32(product) or self._is_angle(product)

    def _is_angle(self, product: Node) -> bool:
        """Return whether a product multiplies positions and frequencies: an outer product."""
        if "rotation" not in self._takers[product] or _name(product) not in _MATRIX_PRODUCTS:
            return False
        first: Any = product.args[0]
        return bool(first.meta["val"].shape[-1] == 1)

    def _follows(self, node: Node) -> bool:
        """Return whether a call computes in the precision of the tensors around it."""
        if node.target is operator.getitem:
            return True
        name = _name(node)
        if name == "div" and node.kwargs.get("rounding_mode") is not None:
            return False
        if name == _BATCH_NORM and any(
            isinstance(a, Node) and self._constants.get(a) is None for a in node.args[1:5]
        ):
            return False
        return is_float32(node) and (name in _POINTWISE or name in _MOVES)

    def _look_back(self, node: Node) -> None:
        name = _name(node)
        floats = [source for source in node.all_input_nodes if is_float32(source)]
        # Constants and numbers take any precision; computed tensors decide.
        moving = [source for source in floats if not self._is_fixed(source)] or floats
        sources = node.all_input_nodes
        if name in _CREATORS or (sources and all(map(self._is_fixed, sources))):
            self._fixed.add(node)
        self._peaks[node] = self._peak(node, name, floats)
        if self._is_quantized(node, name, floats):
            self._quantized.add(node)
        if not is_float32(node):
            return
        reason = self._reason(node, name, floats, moving)
        if reason is None:
            return
        self.reasons[node] = reason
        follows = self._follows(node)
        if name in _NORMALIZATIONS | _SOFTMAX | _ROTATIONS or name == _BATCH_NORM:
            return
        self._wide.add(node)
        if node not in self._fixed and (
            (not follows and node not in self._given)
            or (name not in _FACTORS and any(source in self._grown for source in floats))
        ):
            self._grown.add(node)

    def _reason(self, node: Node, name: str, floats: list[Node], moving: list[Node]) -> str | None:
        if node in self._given:
            return self._given[node]
        if node.target is operator.getitem:
            producer = node.args[0]
            return self.reasons.get(producer) if isinstance(producer, Node) else None
        if "quantize" in name or any(source in self._quantized for source in floats):
            return "quantized"
        if name in _PRODUCTS:
            taken = [s for s in floats if s not in attention_masks(node)]
            if any(self._peak_of(source) > self._limits.max for source in taken):
                return f"values beyond {self._precision}"
            return "angles" if self._is_angle(node) else None
        if name in _NORMALIZATIONS and self._is_between_products(node):
            return None
        if not self._follows(node):
            return _why(name)
        if not floats:
            return _BETWEEN  # It makes floats of other numbers, or of none.
        numbers = _numbers(node, name) + [
            self._peak_of(s) for s in floats if s in self._constants and s.meta["val"].numel() == 1
        ]
        seen = max([self._peaks[node], *map(self._peak_of, floats), *numbers])
        if seen > self._limits.max:
            return f"values beyond {self._precision}"
        if any(0 < number < self._limits.smallest_normal for number in numbers):
            return f"numbers too small for {self._precision}"
        takers = self._takers[node]
        if name in _FACTORS:
            if any(source in self._grown for source in floats):
                return "products with reductions or powers"
            is_square = len(node.all_input_nodes) == 1
            if sum(map(is_float32, node.args)) == _OPERANDS and (
                "sum" in takers or (is_square and "mean" in takers)
            ):
                return "products that are summed"
        if (
            name in _RESIDUAL
            and takers & {"normalization", "written out"}
            and sum(not self._is_fixed(source) for source in floats) == _OPERANDS
            and all(same_sizes(s.meta["val"].shape, node.meta["val"].shape) for s in floats)
        ):
            return _STREAM
        wide = [source in self._wide or source not in self._inside for source in moving]
        if (any(wide) and "float32" in takers) or (all(wide) and "normalization" in takers):
            return _BETWEEN
        return None

    def _is_between_products(self, norm: Node) -> bool:
        """Return whether a normalization gets rounded values, and its result is rounded anyway.

        TensorRT computes it in float32 inside.
        """
        source: Any = norm.args[0]
        of_tokens = _name(norm) in _NORMALIZATIONS_OF_TOKENS
        return (
            source in self._inside
            and self.reasons.get(source) in (None, None if of_tokens else _STREAM)
            and not self._takers[norm]
            and not any(self._takers[pick] for pick in norm.users)
        )

    def _is_fixed(self, node: Node) -> bool:
        return node in self._constants or node in self._fixed

    def _is_quantized(self, node: Node, name: str, floats: list[Node]) -> bool:
        """Return whether a result is made of quantized numbers alone."""
        if "dequantize" in name or "fake_quant" in name:
            return True
        source = node.args[0] if node.args else None
        if name == "_to_copy" and isinstance(source, Node):
            value = source.meta.get("val")
            if isinstance(value, torch.Tensor) and value.dtype == torch.int8:
                return True
        if node.target is operator.getitem or not self._follows(node):
            return False
        return any(source in self._quantized for source in floats) and all(
            source in self._quantized or source in self._constants for source in floats
        )

    def _peak_of(self, node: Node) -> float:
        """Return the largest magnitude known of a node's values; 0 if nothing is known."""
        if node not in self._peaks:
            value: Any = self._constants.get(node)
            is_known = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
            if not is_known or value.dtype in (torch.bool, torch.complex64):
                self._peaks[node] = 0.0
            else:
                self._peaks[node] = largest_value(value)
        return self._peaks[node]

    def _peak(self, node: Node, name: str, floats: list[Node]) -> float:
        numbers = _numbers(node, name)
        values = node.all_input_nodes if name == "_to_copy" else floats
        peaks = [self._peak_of(source) for source in values]
        if name in _BOUNDED:
            return 1.0
        if name == "mul":
            return math.prod(each or 1.0 for each in (*peaks, *numbers))
        if name == "div":
            divisor = numbers[-1] if numbers else 0.0
            return (peaks[0] if peaks else 0.0) / divisor if divisor else max(peaks, default=0.0)
        if self._follows(node) or name in _CREATORS:
            return max((*peaks, *numbers), default=0.0)
        return 0.0


def _why(name: str) -> str:
    for kind, reason in (
        (_NORMALIZATIONS | {_BATCH_NORM}, "normalizations"),
        (_SOFTMAX, "softmax"),
        (_ROTATIONS, "sines and cosines"),
        (_REDUCTIONS, "reductions"),
        (_POWERS, "exponentials, logarithms and powers"),
        (_CREATORS, _BETWEEN),
    ):
        if name in kind:
            return reason
    return "operators without a rule"


def _numbers(node: Node, name: str) -> list[float]:
    """Return the finite magnitudes among a call's numbers that are values."""
    if name not in _WITH_VALUES:
        return []
    given = (*node.args, *node.kwargs.values())
    numbers = [abs(float(a)) for a in given if isinstance(a, int | float) and type(a) is not bool]
    return [number for number in numbers if math.isfinite(number)]
