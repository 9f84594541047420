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

from trt_et.conversion.decompose import decomposed_from
from trt_et.conversion.index_check import IndexCheck
from trt_et.conversion.layers import Layers
from trt_et.conversion.stages import own_converter
from trt_et.errors import ConversionError
from trt_et.graph.symbolic_shapes import size_names

_log = logging.getLogger(__name__)

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
        self._sizes = size_names(self.module.graph.find_nodes(op="placeholder"))

    def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Add an input; its equal dynamic sizes get one name, so that TensorRT knows them equal.

        Without the names, TensorRT-RTX 1.6 fuses less if two inputs have dynamic sizes: BERT with a
        mask has 52 kernels in place of 44.
        """
        tensor = super().placeholder(target, args, kwargs)
        for dim, name in self._sizes[self._node.name].items():
            tensor.set_dimension_name(dim, name)
        return tensor

    def validate_conversion(self) -> set[str]:
        """Refuse a call without a converter; the base class only warns.

        Raises:
            ConversionError: A call has no converter.
        """
        for node in self.module.graph.nodes:
            if node.op == "call_function" and own_converter(node.target) is None:
                _check_converter(node)
        return set()

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Convert one operator, by our converter if there is one; check its indices."""
        add_layer = own_converter(target)
        if add_layer is None:
            result = self._convert(args, kwargs)
        else:
            result = add_layer(Layers(self.ctx, self._node, self._convert), args, kwargs)
        self._indices.check_new_layers()
        result = self._without_dimension(result, self._node, "number")
        _check_shapes(result)
        return result

    def _without_dimension(self, result: Any, node: object, name: str) -> Any:  # noqa: ANN401
        """Drop the dimension that converters add to numbers which they compute with others."""
        value = node.meta.get("val") if isinstance(node, Node) else None
        is_number = isinstance(value, torch.Tensor) and value.dim() == 0
        if not is_number or not isinstance(result, trt.ITensor) or tuple(result.shape) != (1,):
            return result
        layer = self.ctx.net.add_shuffle(result)
        layer.reshape_dims = trt.Dims()
        layer.name = f"{self._node.name}_{name}"
        return layer.get_output(0)

    def _convert(self, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Convert the current node by Torch-TensorRT's converter."""
        node = self._node
        if own_converter(node.target) is not None:
            _check_converter(node)
        result = super().call_function(node.target, args, kwargs)
        if self.ctx.requires_output_allocator:
            raise ConversionError(DATA_DEPENDENT, decomposed_from(node))
        if getattr(self.ctx, "requires_native_multidevice", False):
            raise ConversionError("it communicates between devices", decomposed_from(node))
        return result

    @property
    def _node(self) -> Node:
        node: Node = self.__dict__["_cur_node"]
        return node

    def output(self, target: str, args: Any, kwargs: Any) -> list[Any]:  # noqa: ANN401
        """Mark the outputs; one that is an input or a second use gets an identity layer."""
        network = self.ctx.net
        taken = {network.get_input(i).name for i in range(network.num_inputs)}
        results = []
        nodes: Any = self._node.args[0]
        for index, (node, result) in enumerate(zip(nodes, args[0], strict=True)):
            tensor = get_trt_tensor(self.ctx, result, f"constant_output{index}")
            tensor = self._without_dimension(tensor, node, f"number{index}")
            if tensor.name in taken:
                layer = network.add_identity(tensor)
                layer.name = f"identity_output{index}"
                tensor = layer.get_output(0)
                tensor.name = f"{layer.name}_tensor"
            taken.add(tensor.name)
            results.append(tensor)
        marked: list[Any] = super().output(target, (tuple(results),), kwargs)
        return marked


def _check_converter(node: Node) -> None:
    try:
        if CONVERTERS.get(node) is not None:
            return
    except Exception as error:
        # A validator that fails (on default arguments, for example) accepts nothing.
        _log.debug("the validator of %s failed on %s: %s", node.target, node, error)
    reason = f"Torch-TensorRT's converters of {node.target} do not take these arguments"
    if CONVERTERS.get_unvalidated(node.target) is None:
        reason = f"Torch-TensorRT has no converter for {node.target}"
    raise ConversionError(reason, decomposed_from(node))


def _check_shapes(result: Any) -> None:  # noqa: ANN401
    """Read the shapes of a call's results, which makes TensorRT check the new layers."""
    for tensor in result if isinstance(result, list | tuple) else [result]:
        if isinstance(tensor, trt.ITensor):
            len(tensor.shape)
