"""``gather`` of dynamic sizes."""

from __future__ import annotations

from typing import Any, Final

import torch

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator


def add_gather(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.gather``, whose tensors have at least one dimension.

    Torch-TensorRT 2.13 adds the same layer, but refuses the operator if any size is dynamic.
    """
    source = layers.tensor(args[0], "input")
    index = layers.cast(layers.tensor(args[2], "index"), torch.int32, "indices")
    layer = layers.net.add_gather_v2(source, index, layers.trt.GatherMode.ELEMENT)
    layer.axis = args[1] % len(source.shape)
    return layers.result(layer, "gather")


GATHER: Final = Operator("gather", (torch.ops.aten.gather.default,), add_layer=add_gather)
