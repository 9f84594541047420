"""The operators that the quantizer annotates, by NVIDIA's rules of explicit quantization.

Inputs of products are quantized, results are not: an addition of a bias, an activation function or
a residual after a product stays in its kernel. Weights have a scale for each output channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torchao.quantization.pt2e import FakeQuantize
from torchao.quantization.pt2e.quantizer import (
    QuantizationConfig,
    QuantizationSpec,
    SharedQuantizationSpec,
    annotate_input_qspec_map,
    annotate_output_qspec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from trt_et.graph.operators import ATTENTION, FLOATS, MATRIX_PRODUCTS
from trt_et.quantizer.observers import CalibratedMinMaxObserver
from trt_et.quantizer.outlier_channels import ScaledMinMaxObserver

aten = torch.ops.aten

# The operands of a product: its argument, and the axis of the output channels of a weight.
_Operands = tuple[tuple[int, int | None], tuple[int, int]]
_PRODUCTS: Final[Mapping[OpOverload, _Operands]] = {
    aten.linear.default: ((0, None), (1, 0)),
    aten.conv1d.default: ((0, None), (1, 0)),
    aten.conv1d.padding: ((0, None), (1, 0)),
    aten.conv2d.default: ((0, None), (1, 0)),
    aten.conv2d.padding: ((0, None), (1, 0)),
    aten.conv3d.default: ((0, None), (1, 0)),
    aten.conv3d.padding: ((0, None), (1, 0)),
    aten.convolution.default: ((0, None), (1, 0)),
    aten.conv_transpose1d.default: ((0, None), (1, 1)),
    aten.conv_transpose2d.input: ((0, None), (1, 1)),
    aten.conv_transpose3d.input: ((0, None), (1, 1)),
    aten.mm.default: ((0, -2), (1, -1)),
    aten.bmm.default: ((0, -2), (1, -1)),
    aten.matmul.default: ((0, -2), (1, -1)),
    aten.addmm.default: ((1, -2), (2, -1)),
    aten.baddbmm.default: ((1, -2), (2, -1)),
}
_CONVOLUTIONS: Final = tuple(op for op in _PRODUCTS if "conv" in op._schema.name)
_NORMS: Final = (aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default)
_SUMS: Final = (aten.add.Tensor, aten.add_.Tensor)
_SHARING: Final = (
    aten.cat.default,
    aten.max_pool1d.default,
    aten.max_pool2d.default,
    aten.max_pool3d.default,
    aten.avg_pool1d.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
)

QUANTIZED_OPS: Final[tuple[OpOverload, ...]] = (
    *_PRODUCTS,
    ATTENTION,
    aten.embedding.default,
    *_SUMS,
    *_SHARING,
)
"""The operators that a configuration can be set for."""


def annotate_product(node: Node, config: QuantizationConfig, constants: Set[Node]) -> None:
    """Annotate a product, a lookup in an embedding, or the sum of a convolution and a residual.

    Nothing happens if the node is none of these. The constants belong to its graph.
    """
    if Q_ANNOTATION_KEY in node.meta:
        return
    if node.target in _PRODUCTS:
        _annotate_operands(node, config, constants)
    elif node.target is aten.embedding.default:
        weight = node.args[0]
        if isinstance(weight, Node) and weight in constants and _is_float(weight):
            _annotate(node, weight, _weight_spec(config.weight, 0), "weight")
    elif node.target in _SUMS:
        residual = _residual(node)
        if residual is not None:
            _annotate(node, residual, config.input_activation, "residual")


def annotate_shared(node: Node, config: QuantizationConfig) -> None:
    """Annotate a concatenation or pooling before an annotated operator: all share one scale.

    Its users are annotated before.
    """
    spec = config.input_activation
    sources = [source for source in node.all_input_nodes if _is_float(source)]
    if (
        spec is None
        or node.target not in _SHARING
        or Q_ANNOTATION_KEY in node.meta
        or not sources
        or not any(_quantizes(user, node) for user in node.users)
    ):
        return
    shared = SharedQuantizationSpec((sources[0], node))
    _annotate(node, sources[0], spec, "input")
    for source in sources[1:]:
        annotate_input_qspec_map(node, source, shared)
    annotate_output_qspec(node, shared)


def _annotate_operands(node: Node, config: QuantizationConfig, constants: Set[Node]) -> None:
    operands = _PRODUCTS[node.target]  # type: ignore[index]
    given = []
    for index, axis in operands:
        operand = node.args[index] if len(node.args) > index else None
        if not isinstance(operand, Node) or not _is_float(operand):
            return
        given.append((operand, axis))
    if _is_outer(node, given[0][0]):
        return
    for operand, axis in given:
        rank = operand.meta["val"].dim()
        if _is_transposed(node):
            axis = axis if axis is None else 1
        if axis is not None and operand in constants and rank >= 2:
            spec = _weight_spec(config.weight, axis % rank)
            _annotate(node, operand, spec, "weight")
        else:
            _annotate(node, operand, _input_spec(node, config), "input")


def _input_spec(node: Node, config: QuantizationConfig) -> QuantizationSpec | None:
    """Return the specification of an activation; a linear layer's may have outlier channels."""
    spec, weight = config.input_activation, config.weight
    if (
        spec is None
        or weight is None
        or node.target is not aten.linear.default
        or weight.qscheme is not torch.per_channel_symmetric
        or _observer(spec)[0] is not CalibratedMinMaxObserver
    ):
        return spec
    return replace(spec, observer_or_fake_quant_ctr=ScaledMinMaxObserver)


def _weight_spec(spec: QuantizationSpec | None, axis: int) -> QuantizationSpec | None:
    """Return the specification of a weight whose output channels are at an axis."""
    if spec is None or spec.qscheme is not torch.per_channel_symmetric or spec.ch_axis == axis:
        return spec
    if issubclass(_observer(spec)[0], FakeQuantize):
        spec = _with_arguments(spec, ch_axis=axis)  # prepare_qat_pt2e does not pass it on.
    return replace(spec, ch_axis=axis)


def _annotate(node: Node, source: Node, spec: QuantizationSpec | None, what: str) -> None:
    if spec is not None:
        spec = _with_arguments(spec, observed=f"the {what} {source.name} of {node.name}")
    elif node.target not in _CONVOLUTIONS:
        return  # prepare_qat_pt2e expects both operands of a convolution.
    annotate_input_qspec_map(node, source, spec)
    node.meta[Q_ANNOTATION_KEY]._annotated = True


def _with_arguments(spec: QuantizationSpec, **arguments: Any) -> QuantizationSpec:  # noqa: ANN401
    observer, given = _observer(spec)
    # PT2E expects a class within one wrapper.
    return replace(spec, observer_or_fake_quant_ctr=observer.with_args(**(given | arguments)))


def _observer(spec: QuantizationSpec) -> tuple[Any, dict[str, Any]]:
    """Return the class of a specification's observer and its arguments."""
    made: Any = spec.observer_or_fake_quant_ctr
    return (made, {}) if isinstance(made, type) else (made.p.func, dict(made.p.keywords))


def _residual(node: Node) -> Node | None:
    """Return the branch of a sum whose other branch is a convolution's result."""
    first, second = node.args[:2]
    if not isinstance(first, Node) or not isinstance(second, Node) or first is second:
        return None
    if not (_is_float(first) and first.meta["val"].shape == second.meta["val"].shape):
        return None
    for branch, other in ((first, second), (second, first)):
        if _is_convolved(branch) and len(branch.users) == 1:
            return other
    return None


def _is_convolved(node: Node) -> bool:
    if node.target in _NORMS and isinstance(node.args[0], Node):
        return _is_convolved(node.args[0])
    return node.target in _CONVOLUTIONS


def _is_outer(node: Node, first: Node) -> bool:
    """Return whether a matrix product adds nothing up, as rotary embeddings' of positions do."""
    return (
        node.target in MATRIX_PRODUCTS - {aten.linear.default} and first.meta["val"].shape[-1] == 1
    )


def _is_transposed(node: Node) -> bool:
    return node.target is aten.convolution.default and bool(node.args[6])


def _quantizes(node: Node, source: Node) -> bool:
    annotation = node.meta.get(Q_ANNOTATION_KEY)
    return annotation is not None and annotation.input_qspec_map.get(source) is not None


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in FLOATS
