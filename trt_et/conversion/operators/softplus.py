"""``softplus`` with a threshold."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from trt_et.conversion.operator import Operator

# Above this, softplus is its argument as far as float32 can tell.
_THRESHOLD: Final = 15


def threshold(node: Node) -> str | None:
    """Refuse a threshold low enough to change the result; TensorRT's layer has no threshold."""
    args: Any = node.args
    if len(args) > 2 and args[2] < _THRESHOLD:
        return "TensorRT's softplus has no threshold"
    return None


SOFTPLUS: Final = Operator(
    "softplus", (torch.ops.aten.softplus.default,), unsupported=threshold, upstream="softplus"
)
