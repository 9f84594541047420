"""Define ``trt_et::convolution``, a convolution that assumes nothing about dynamic sizes.

``to_executorch`` runs a delegate's program on fake tensors. For ``aten.convolution``, torch then
chooses a CPU kernel by the input's sizes (``_select_conv_backend``). The comparisons that hold for
the example's sizes become bounds of the symbol: ExecuTorch plans memory for 20,480 elements, or for
a batch of 15, and refuses larger inputs at run time (seen with torch 2.13, ExecuTorch 1.5.1). An
engine takes the exported range, so the program of a built partition calls this operator instead.
"""

from __future__ import annotations

import torch
from executorch.exir.dialects._ops import ops
from executorch.exir.tensor import dim_order_from_stride
from torch import Tensor
from torch.fx import Graph

from trt_et.graph.symbolic_shapes import is_static


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    dim_order: list[int],
) -> Tensor:
    result = torch.ops.aten.convolution.default(
        *(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    )
    dense = torch.empty_permuted(result.shape, dim_order, dtype=result.dtype, device=result.device)
    return dense.copy_(result)


torch.library.define(
    "trt_et::convolution",
    "(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "
    "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, int[] dim_order) "
    "-> Tensor",
)
# On meta tensors, torch chooses no kernel.
for _key in ("CPU", "Meta"):
    torch.library.impl("trt_et::convolution", _key, _convolution)


def keep_ranges(graph: Graph) -> None:
    """Replace an Edge graph's convolutions of dynamic sizes, so that no pass narrows the ranges."""
    for node in graph.nodes:
        if node.target is ops.edge.aten.convolution.default and not is_static(node.args[0]):
            order = [int(dim) for dim in dim_order_from_stride(node.meta["val"].stride())]
            node.target = ops.edge.trt_et.convolution.default
            node.args = (*node.args, order)
