"""``embedding`` with constant indices."""

from __future__ import annotations

from typing import Any, Final

import torch

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator


def add_embedding(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layers of Torch-TensorRT's converter, which refuses constant int64 indices (2.13)."""
    weights, indices, *rest = args
    if isinstance(indices, torch.Tensor):
        indices = indices.int()
    return layers.convert([weights, indices, *rest], kwargs)


EMBEDDING: Final = Operator(
    "embedding",
    (torch.ops.aten.embedding.default,),
    add_layer=add_embedding,
    fixed_in=("torch", "2.14"),
)
