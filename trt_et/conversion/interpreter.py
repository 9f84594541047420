"""Torch-TensorRT's interpreter, made exact about a partition's outputs.

Imported only where Torch-TensorRT is loaded already (see ``network.py``).
"""

from __future__ import annotations

from typing import Any

import tensorrt as trt
import torch
from torch.fx import Node
from torch.fx.node import _get_qualified_name
from torch_tensorrt.dynamo.conversion._ConversionContext import ConversionContext
from torch_tensorrt.dynamo.conversion._TRTInterpreter import TRTInterpreter
from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor

from trt_et.conversion.converters.slice import bound_slice
from trt_et.conversion.index_check import IndexCheck
from trt_et.conversion.registry import converter_for

__all__ = ["PartitionInterpreter"]


class _KeepingContext(ConversionContext):
    """Keeps the memory that TensorRT reads weights from (Torch-TensorRT 2.13).

    ``to_trt_weights`` records a tensor, then hands TensorRT the address of ``value.contiguous()``:
    where the tensor is not contiguous (an expanded constant, say) that copy is freed at once, and
    TensorRT reads freed memory when it builds. Making the recorded tensor contiguous first makes
    both the same memory.
    """

    def record_weight(self, name: str, weight: torch.Tensor) -> None:
        """Record a weight, contiguous, until the engine is built."""
        if not weight.is_contiguous():
            weight.data = weight.data.contiguous()
        super().record_weight(name, weight)


class PartitionInterpreter(TRTInterpreter):
    """Gives every output of the partition a binding of its own.

    The base class (Torch-TensorRT 2.13) marks a tensor once however often it is returned, and
    TensorRT cannot return an input as it is; a delegate's outputs are positional, so both would
    shift them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        plain: ConversionContext = self.__dict__["ctx"]
        self.ctx: Any = _KeepingContext(plain.net, self.compilation_settings)
        self._indices = IndexCheck(plain.net)

    def validate_conversion(self) -> set[str]:
        """Return the operators without a converter; the base class warns of them."""
        missing: set[str] = super().validate_conversion()
        return missing - {
            f"{node.op} {_get_qualified_name(node.target)}"
            for node in self.module.graph.nodes
            if converter_for(node.target) is not None
        }

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Convert one operator, by a converter of ours where there is one; check its indices."""
        first = self.ctx.net.num_layers
        own = converter_for(target)
        if own is not None and own.converts(args):
            result = own.load()(self.ctx, self._node, args, kwargs)
        else:
            result = super().call_function(target, self._adapted(target, args), kwargs)
            if target is torch.ops.aten.scaled_dot_product_attention.default:
                _align_causal_masks(self.ctx.net, first)
        self._indices.check_new_layers()
        return result

    @property
    def _node(self) -> Node:
        node: Node = self.__dict__["_cur_node"]
        return node

    def _adapted(self, target: Any, args: Any) -> Any:  # noqa: ANN401
        """The arguments as Torch-TensorRT's converters take them."""
        if target is torch.ops.aten.scaled_dot_product_attention.default:
            # Its converter hands the layer constants as they are (first queries of DETR).
            return [
                get_trt_tensor(self.ctx, argument, f"{self._node.name}_argument{index}")
                if isinstance(argument, torch.Tensor)
                else argument
                for index, argument in enumerate(args)
            ]
        if target is torch.ops.aten.embedding.default and isinstance(args[1], torch.Tensor):
            # 2.13's converter refuses constant indices that are int64, as torch has them.
            return [args[0], args[1].int(), *args[2:]]
        if target is torch.ops.aten.slice.Tensor:
            return bound_slice(args)
        return args

    def output(self, target: str, args: Any, kwargs: Any) -> list[Any]:  # noqa: ANN401
        """Mark the outputs, each through an identity layer where it must be a tensor of its own."""
        network = self.ctx.net
        taken = {network.get_input(i).name for i in range(network.num_inputs)}
        results = []
        nodes: Any = self._node.args[0]
        for index, (node, result) in enumerate(zip(nodes, args[0], strict=True)):
            tensor = get_trt_tensor(self.ctx, result, f"constant_output{index}")
            value = node.meta.get("val") if isinstance(node, Node) else None
            if value is not None and value.dim() == 0 and tuple(tensor.shape) == (1,):
                # Its converters give a number that they compute with others one dimension.
                layer = network.add_shuffle(tensor)
                layer.reshape_dims = trt.Dims()
                layer.name = f"scalar_output{index}"
                tensor = layer.get_output(0)
            if tensor.name in taken:
                layer = network.add_identity(tensor)
                layer.name = f"identity_output{index}"
                tensor = layer.get_output(0)
                tensor.name = f"{layer.name}_tensor"
            taken.add(tensor.name)
            results.append(tensor)
        marked: list[Any] = super().output(target, (tuple(results),), kwargs)
        return marked


def _align_causal_masks(network: Any, first: int) -> None:  # noqa: ANN401
    """Align the causal masks of new layers as torch does: each query sees the keys up to its index.

    Torch-TensorRT 2.14 aligns the last query with the last key: with more queries than keys, or
    fewer, other keys are seen. 2.13 has torch's.

    Args:
        network: ``trt.INetworkDefinition``.
        first: The index of the first new layer.
    """
    for index in range(first, network.num_layers):
        layer = network.get_layer(index)
        if layer.type.name != "ATTENTION_INPUT":  # TensorRT 10 has no such layer.
            continue
        layer.__class__ = trt.IAttentionInputLayer
        if layer.attention.causal_kind == trt.CausalMaskKind.LOWER_RIGHT:
            layer.attention.causal_kind = trt.CausalMaskKind.UPPER_LEFT
