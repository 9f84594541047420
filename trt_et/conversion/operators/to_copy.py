"""Casts, also between an input and an output of dynamic shape."""

from __future__ import annotations

from typing import Any, Final

import torch

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator


def add_cast(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten._to_copy``; none if the tensor has the dtype.

    Torch-TensorRT 2.13 and 2.14 have two converters; the one for a cast of an input that is
    returned takes static shapes only.
    """
    tensor = layers.tensor(args[0], "input")
    return layers.cast(tensor, kwargs.get("dtype", tensor.dtype), "cast")


TO_COPY: Final = Operator("_to_copy", (torch.ops.aten._to_copy.default,), add_layer=add_cast)
