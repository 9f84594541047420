"""Operators that ExecuTorch would decompose, and that an engine runs better as they are."""

from __future__ import annotations

from typing import Final

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from trt_et.graph.subgraphs import subgraphs
from trt_et.lowering.edge_to_aten import aten_target
from trt_et.ops.quantize import is_fake_quantize
from trt_et.partition.excluded_ops import ExcludedOps
from trt_et.partition.operator_support import OperatorSupport, SupportCheck

__all__ = ["OPS_TO_PRESERVE", "must_be_delegated", "ops_to_preserve"]

aten = torch.ops.aten

# What TensorRT has a layer for and the Edge dialect would take apart. matmul and the pooling
# variants become fewer, larger layers; attention and linear keep their fused kernels. Not here,
# because their converters fail (Torch-TensorRT 2.13): avg_pool1d, max_pool1d.
OPS_TO_PRESERVE: Final[tuple[OpOverload, ...]] = (
    aten.linear.default,
    aten.matmul.default,
    aten.scaled_dot_product_attention.default,
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
    aten.max_pool2d.default,
    aten.max_pool3d.default,
    aten.hardsigmoid.default,
    aten.softplus.default,
    aten._prelu_kernel.default,
    aten.embedding_bag.padding_idx,
    aten.pad.default,
    aten.reflection_pad1d.default,
    aten.reflection_pad2d.default,
    aten.reflection_pad3d.default,
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
    aten.upsample_linear1d.vec,
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest3d.vec,
    aten.upsample_trilinear3d.vec,
    aten.upsample_bicubic2d.vec,
    aten.grid_sampler.default,
)


def ops_to_preserve(
    module: GraphModule, check: SupportCheck, excluded: ExcludedOps | None = None
) -> list[OpOverload]:
    """The operators of an ATen program that must not be decomposed: an engine runs each as one.

    An operator counts only if *every* node that calls it is supported: a preserved operator must be
    delegated, because ExecuTorch has no CPU kernel for most of these. Nodes in branches and bodies
    of control flow count too.
    """
    called: set[OpOverload] = set()
    refused: set[object] = set()
    for subgraph in subgraphs(module):
        here = {
            op for op in OPS_TO_PRESERVE if any(node.target is op for node in subgraph.graph.nodes)
        }
        if here:
            called |= here
            support = OperatorSupport(subgraph, check, excluded, here)
            refused |= {node.target for node in support.reasons}
    return [op for op in OPS_TO_PRESERVE if op in called and op not in refused]


def must_be_delegated(node: Node) -> bool:
    """Whether there may be no kernel for a node: its operator is preserved, or another tool's."""
    target = aten_target(node)
    return target in OPS_TO_PRESERVE or is_fake_quantize(target)
