"""Cumulative sums as TensorRT's own layer."""

from __future__ import annotations

from typing import Any, Final

import torch

from trt_et.conversion.layers import Layers
from trt_et.conversion.operator import Operator

# Half precision adds up in float32, as torch does on a CPU.
_SUMMED_IN: Final = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def add_cumulative_sum(layers: Layers, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``aten.cumsum``.

    Torch-TensorRT makes a loop. TensorRT-RTX 1.5 does not build that loop (1.6 does), and causal
    language models make their masks with cumulative sums.
    """
    trt = layers.trt
    dtype = layers.node.meta["val"].dtype
    summand = layers.tensor(args[0], "input")
    summand = layers.cast(summand, _SUMMED_IN.get(dtype, dtype), "summand")
    if len(summand.shape) > 0:  # A single number is its own sum.
        dim = torch.tensor(args[1] % len(summand.shape), dtype=torch.int32)
        axis = layers.tensor(dim, "axis", min_rank=0)
        layer = layers.net.add_cumulative(summand, axis, trt.CumulativeOperation.SUM, False, False)
        summand = layers.result(layer, "cumulative_sum")
    return layers.cast(summand, dtype, "sum")


CUMSUM: Final = Operator("cumsum", (torch.ops.aten.cumsum.default,), add_layer=add_cumulative_sum)
