"""Refuses layers with a constant negative index that TensorRT does not count from the end.

TensorRT counts a negative index from the end in one case only: a gather along a dimension of static
size (``IGatherLayer`` in its ``NvInfer.h``). For other layers it builds an engine whose results are
undefined. ``operators/indexing.py`` handles the indices that a program computes.

Import it only after Torch-TensorRT (see ``network.py``).
"""

from __future__ import annotations

from typing import Any, Final

import tensorrt as trt

_MOVES: Final = (trt.LayerType.CAST, trt.LayerType.IDENTITY, trt.LayerType.SHUFFLE)
_INTEGERS: Final = (trt.int32, trt.int64)


class IndexCheck:
    """Looks at each layer of a network once, in the order in which they are added."""

    def __init__(self, network: Any) -> None:  # noqa: ANN401
        self._network = network
        self._seen = 0
        self._lowest: dict[str, Any] = {}

    def check_new_layers(self) -> None:
        """Check the layers added since the last call.

        Raises:
            ValueError: A layer gathers, scatters or slices by a negative index that TensorRT does
                not count from the end.
        """
        for number in range(self._seen, self._network.num_layers):
            self._check(self._network.get_layer(number))
        self._seen = self._network.num_layers

    def _check(self, layer: Any) -> None:  # noqa: ANN401
        kind = layer.type
        if kind == trt.LayerType.CONSTANT and layer.get_output(0).dtype in _INTEGERS:
            layer.__class__ = trt.IConstantLayer
            values = layer.weights
            # One for each column: an index of several dimensions has one there for each.
            lowest = values.reshape(layer.shape).min(tuple(range(len(layer.shape) - 1)), initial=0)
            self._lowest[layer.get_output(0).name] = lowest
        elif kind in _MOVES and layer.num_inputs and layer.get_input(0).name in self._lowest:
            self._lowest[layer.get_output(0).name] = self._lowest[layer.get_input(0).name]
        elif kind == trt.LayerType.GATHER:
            self._check_gather(layer)
        elif kind == trt.LayerType.SCATTER and any(self._negative(layer.get_input(1))):
            raise ValueError("it scatters by a negative index")
        elif kind == trt.LayerType.SLICE:
            self._check_slice(layer)

    def _negative(self, tensor: Any) -> list[bool]:  # noqa: ANN401
        lowest = self._lowest.get(tensor.name)
        return [] if lowest is None else (lowest.reshape(-1) < 0).tolist()

    def _check_gather(self, layer: Any) -> None:  # noqa: ANN401
        layer.__class__ = trt.IGatherLayer
        shape = layer.get_input(0).shape
        negative = self._negative(layer.get_input(1))
        if layer.mode == trt.GatherMode.ND:
            first = layer.num_elementwise_dims
            dims = [first + column for column, below in enumerate(negative) if below]
        else:
            dims = [layer.axis] if any(negative) else []
        if any(shape[dim] < 0 for dim in dims):
            raise ValueError("it gathers by a negative index along a dynamic dimension")

    def _check_slice(self, layer: Any) -> None:  # noqa: ANN401
        layer.__class__ = trt.ISliceLayer
        strict = layer.mode == trt.SampleMode.STRICT_BOUNDS
        if strict and layer.num_inputs < 2 and any(start < 0 for start in layer.start):
            raise ValueError("it slices from a negative index on")
