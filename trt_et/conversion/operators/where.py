"""``where`` in the dtype that torch has."""

from __future__ import annotations

from typing import Any, Final

import torch

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator


def add_select(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.where.self``.

    Torch-TensorRT 2.13 knows float32 and float16 and makes int32 of all else: bfloat16 loses its
    fraction, int64 its upper half.
    """
    from torch_tensorrt.dynamo.conversion.converter_utils import prepend_ones

    value = layers.node.meta["val"]
    # TensorRT selects between everything but these.
    dtype = torch.int32 if value.dtype == torch.uint8 else value.dtype
    tensors = []
    for name, argument, wanted in zip(
        ("condition", "chosen", "other"), args, (torch.bool, dtype, dtype), strict=True
    ):
        tensor = layers.tensor(argument, name, min_rank=0)
        tensor = layers.cast(tensor, wanted, f"{name}_cast")
        missing = value.dim() - len(tensor.shape)
        label = f"{layers.node.name}_{name}_ones"
        tensors.append(prepend_ones(layers.ctx, tensor, label, missing) if missing else tensor)
    selected = layers.result(layers.net.add_select(*tensors), "select")
    return layers.cast(selected, value.dtype, "result")


WHERE: Final = Operator(
    "where", (torch.ops.aten.where.self,), add_layer=add_select, upstream="where"
)
