"""Extends Torch-TensorRT's interpreter: our converters, exact outputs, checked indices.

``network.py`` imports this file after Torch-TensorRT.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import tensorrt as trt
import torch
from torch.fx import Node
from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS as CONVERTERS
from torch_tensorrt.dynamo.conversion._ConversionContext import ConversionContext
from torch_tensorrt.dynamo.conversion._TRTInterpreter import TRTInterpreter
from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor

from trt_et.conversion.converters.slice import bound_slice
from trt_et.conversion.decompose import decomposed_from
from trt_et.conversion.index_check import IndexCheck
from trt_et.conversion.registry import converter_for
from trt_et.errors import ConversionError

_log = logging.getLogger(__name__)

__all__ = ["DATA_DEPENDENT", "PartitionInterpreter"]

DATA_DEPENDENT: Final = (
    "its output shape depends on data, which an ExecuTorch delegate cannot return"
)


class _KeepingContext(ConversionContext):
    """Keeps the memory that TensorRT reads weights from (Torch-TensorRT 2.13).

    ``to_trt_weights`` records a tensor, then gives TensorRT the address of ``value.contiguous()``.
    If the tensor is not contiguous (an expanded constant, for example), that copy is freed at once,
    and TensorRT reads freed memory when it builds. If the recorded tensor is contiguous, both are
    the same memory.
    """

    def record_weight(self, name: str, weight: torch.Tensor) -> None:
        """Record a weight, contiguous, until the engine is built."""
        if not weight.is_contiguous():
            weight.data = weight.data.contiguous()
        super().record_weight(name, weight)


class PartitionInterpreter(TRTInterpreter):
    """Gives every output of the partition a separate binding.

    The base class (Torch-TensorRT 2.13) marks a tensor once even if it is returned twice, and
    TensorRT cannot return an input. A delegate's outputs are positional, so both would shift them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        plain: ConversionContext = self.__dict__["ctx"]
        self.ctx: Any = _KeepingContext(plain.net, self.compilation_settings)
        self._indices = IndexCheck(plain.net)

    def validate_conversion(self) -> set[str]:
        """Refuse a call without a converter; the base class only warns.

        Raises:
            ConversionError: A call has no converter.
        """
        for node in self.module.graph.nodes:
            if node.op == "call_function" and converter_for(node.target) is None:
                reason = _missing_converter(node)
                if reason is not None:
                    raise ConversionError(reason, decomposed_from(node))
        return set()

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Convert one operator, by our converter if there is one; check its indices."""
        first = self.ctx.net.num_layers
        own = converter_for(target)
        if own is not None and own.converts(args):
            result = own.load()(self.ctx, self._node, args, kwargs)
        else:
            result = super().call_function(target, self._adapted(target, args), kwargs)
            self._check_traits()
            if target is torch.ops.aten.scaled_dot_product_attention.default:
                _align_causal_masks(self.ctx.net, first)
        self._indices.check_new_layers()
        _check_shapes(result)
        return result

    def _check_traits(self) -> None:
        if self.ctx.requires_output_allocator:
            raise ConversionError(DATA_DEPENDENT, decomposed_from(self._node))
        if getattr(self.ctx, "requires_native_multidevice", False):
            raise ConversionError("it communicates between devices", decomposed_from(self._node))

    @property
    def _node(self) -> Node:
        node: Node = self.__dict__["_cur_node"]
        return node

    def _adapted(self, target: Any, args: Any) -> Any:  # noqa: ANN401
        """Adapt the arguments to Torch-TensorRT's converters."""
        if target is torch.ops.aten.scaled_dot_product_attention.default:
            # Its converter passes constants to the layer unchanged (first queries of DETR).
            return [
                get_trt_tensor(self.ctx, argument, f"{self._node.name}_argument{index}")
                if isinstance(argument, torch.Tensor)
                else argument
                for index, argument in enumerate(args)
            ]
        if target is torch.ops.aten.embedding.default and isinstance(args[1], torch.Tensor):
            # 2.13's converter refuses constant int64 indices.
            return [args[0], args[1].int(), *args[2:]]
        if target is torch.ops.aten.slice.Tensor:
            return bound_slice(args)
        return args

    def output(self, target: str, args: Any, kwargs: Any) -> list[Any]:  # noqa: ANN401
        """Mark the outputs; one that is an input or a second use gets an identity layer."""
        network = self.ctx.net
        taken = {network.get_input(i).name for i in range(network.num_inputs)}
        results = []
        nodes: Any = self._node.args[0]
        for index, (node, result) in enumerate(zip(nodes, args[0], strict=True)):
            tensor = get_trt_tensor(self.ctx, result, f"constant_output{index}")
            value = node.meta.get("val") if isinstance(node, Node) else None
            if value is not None and value.dim() == 0 and tuple(tensor.shape) == (1,):
                # Its converters add a dimension to numbers that they compute with others.
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


def _missing_converter(node: Node) -> str | None:
    try:
        if CONVERTERS.get(node) is not None:
            return None
    except Exception as error:
        # A validator that fails (on default arguments, for example) accepts nothing.
        _log.debug("the validator of %s failed on %s: %s", node.target, node, error)
    if CONVERTERS.get_unvalidated(node.target) is None:
        return f"Torch-TensorRT has no converter for {node.target}"
    return f"Torch-TensorRT's converters of {node.target} do not take these arguments"


def _check_shapes(result: Any) -> None:  # noqa: ANN401
    """Read the shapes of a call's results, which makes TensorRT check the new layers."""
    for tensor in result if isinstance(result, list | tuple) else [result]:
        if isinstance(tensor, trt.ITensor):
            len(tensor.shape)


def _align_causal_masks(network: Any, first: int) -> None:  # noqa: ANN401
    """Align the causal masks of new layers as torch does: each query sees the keys up to its index.

    Torch-TensorRT 2.14 aligns the last query with the last key. If there are more queries than
    keys, or fewer, a query then sees other keys than in torch. 2.13 aligns as torch does.

    Args:
        network: ``trt.INetworkDefinition``.
        first: The index of the first new layer.
    """
    for index in range(first, network.num_layers):
        layer = network.get_layer(index)
        if layer.type.name != "ATTENTION_INPUT":  # TensorRT 10 lacks this layer.
            continue
        layer.__class__ = trt.IAttentionInputLayer
        if layer.attention.causal_kind == trt.CausalMaskKind.LOWER_RIGHT:
            layer.attention.causal_kind = trt.CausalMaskKind.UPPER_LEFT
