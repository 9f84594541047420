"""Quantizes inputs of linear layers whose channels have very different ranges."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.utils import create_getattr_from_value, getattr_from_fqn

from trt_et.graph.constants import constant_value
from trt_et.quantizer.observers import CalibratedMinMaxObserver

aten = torch.ops.aten
_pt2e = torch.ops.quantized_decomposed

_OUTLIER: Final = 4.0  # Times the median range of the channels.
_LARGEST_FACTOR: Final = 32.0  # A weight has 7 bits to give.


class ScaledMinMaxObserver(CalibratedMinMaxObserver):
    """Takes the range of a linear layer's input, its outlier channels scaled down.

    In a transformer, some channels have ranges many times larger than the others. One scale for
    the tensor would round the others to a few steps. So the converted program divides these
    channels before it quantizes, and multiplies their weights, as SmoothQuant does with all
    channels. The products are the same.
    """

    channel_max: torch.Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.register_buffer("channel_max", torch.zeros(0))
        self._has_one_site = True

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        """Observe a tensor, its channels on the last axis, and return it."""
        if x_orig.numel() > 0:
            seen = x_orig.detach().abs().reshape(-1, x_orig.shape[-1]).amax(0).to(torch.float32)
            known = self.channel_max
            self.channel_max = torch.maximum(known, seen) if known.shape == seen.shape else seen
        observed: torch.Tensor = super().forward(x_orig)
        return observed

    def convert(self, model: GraphModule, node: Node) -> None:
        """Replace the observer by the operators of PT2E; ``convert_pt2e`` calls this."""
        self.check_range()
        source: Any = node.args[0]
        weights = self._weights(model, node)
        factors = _factors(self.channel_max) if weights else torch.ones(1)
        low, high = self.min_val, self.max_val
        if bool((factors > 1).any()):
            for weight in weights:
                _scale_weight(model, weight, factors)
            source = _scaled(model, node, source, 1 / factors)
            high = (self.channel_max / factors).max().to(high)
            low = -high
        scale, _ = self._calculate_qparams(low, high)
        how = (float(scale), 0, self.quant_min, self.quant_max, self.dtype)
        dtype = source.meta["val"].dtype
        wider = {} if dtype is torch.float32 else {"out_dtype": dtype}
        with model.graph.inserting_before(node):
            numbers = model.graph.call_function(_pt2e.quantize_per_tensor.default, (source, *how))
            result = model.graph.call_function(
                _pt2e.dequantize_per_tensor.default, (numbers, *how), wider
            )
        node.replace_all_uses_with(result)
        model.graph.erase_node(node)

    def _weights(self, model: GraphModule, node: Node) -> list[Node]:
        """Return the dequantized weights of the layers that use the input; empty for other uses."""
        if sum(_observer(model, n) is self for n in model.graph.nodes) > 1:
            self._has_one_site = False  # Several tensors have one scale.
        users = list(node.users)
        if not self._has_one_site or any(user.target is not aten.linear.default for user in users):
            return []
        weights: list[Any] = [user.args[1] for user in users]
        return weights if all(map(_is_only_used_here, weights)) else []


def _is_only_used_here(weight: Node) -> bool:
    """Return whether a weight is quantized for one layer; convert_pt2e begins with weights."""
    if weight.target is not _pt2e.dequantize_per_channel.default or len(weight.users) > 1:
        return False
    numbers, axis = weight.args[0], weight.args[3]
    return isinstance(numbers, Node) and len(numbers.users) == 1 and bool(axis == 0)


def _factors(channel_max: torch.Tensor) -> torch.Tensor:
    used = channel_max[channel_max > 0]
    if used.numel() == 0:
        return torch.ones_like(channel_max)
    return (channel_max / (_OUTLIER * used.median())).clamp(1.0, _LARGEST_FACTOR)


def _observer(model: GraphModule, node: Node) -> torch.nn.Module | None:
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None


def _scale_weight(model: GraphModule, weight: Node, factors: torch.Tensor) -> None:
    """Multiply a weight before it is quantized, and adapt its scales."""
    quantize: Any = weight.args[0]
    source, scales, highest = quantize.args[0], quantize.args[1], quantize.args[5]
    quantize.update_arg(0, _scaled(model, quantize, source, factors))
    value = constant_value(source)
    assert value is not None
    largest = (value.detach() * factors).abs().amax(1)
    eps = torch.finfo(torch.float32).eps
    getattr_from_fqn(model, scales.target).copy_((largest / highest).clamp(min=eps))


def _scaled(model: GraphModule, before: Node, source: Node, factors: torch.Tensor) -> Node:
    value = factors.to(source.meta["val"].dtype)
    with model.graph.inserting_before(before):
        constant = create_getattr_from_value(model, model.graph, f"{before.name}_factors_", value)
        product = model.graph.call_function(aten.mul.Tensor, (source, constant))
    product.meta = dict(source.meta)
    return product
