"""Chooses operators that ExecuTorch must not decompose, since an engine runs each as one layer."""

from __future__ import annotations

from typing import Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import aten_target, functional
from trt_et.graph.constants import known_constants
from trt_et.graph.fragment import SupportCheck
from trt_et.graph.subgraphs import nodes_of, subgraphs
from trt_et.ops.quantize import is_fake_quantize
from trt_et.partition.internal_sizes import nodes_without_sizes
from trt_et.partition.node_choice import NodeChoice
from trt_et.partition.operator_support import OperatorSupport

aten = torch.ops.aten

_RMS_NORM: Final = aten.rms_norm.default

# TensorRT has a layer for each; the Edge dialect would decompose them. matmul and the pooling
# variants become fewer, larger layers; attention and linear keep fused kernels. The converters
# of avg_pool1d and max_pool1d fail (Torch-TensorRT 2.13).
OPS_TO_PRESERVE: Final[tuple[OpOverload, ...]] = (
    aten.linear.default,
    aten.matmul.default,
    aten.scaled_dot_product_attention.default,
    _RMS_NORM,
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
    aten.max_pool2d.default,
    aten.max_pool3d.default,
    aten.hardsigmoid.default,
    aten.hardswish.default,
    aten.silu.default,
    aten.mish.default,
    aten.log_sigmoid.default,
    aten.baddbmm.default,
    aten.instance_norm.default,
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
    program: ExportedProgram,
    check: SupportCheck,
    excluded: NodeChoice,
    float32_ops: NodeChoice,
) -> list[OpOverload]:
    """Return the operators of an ATen program that must not be decomposed.

    An operator counts only if *every* call of it is supported, also in branches and bodies of
    control flow: a preserved operator must be delegated, because ExecuTorch has no CPU kernel for
    most of them.
    """
    called: set[OpOverload] = set()
    refused: set[object] = set()
    for subgraph in subgraphs(program.graph_module):
        calls = [n.target for n in subgraph.graph.nodes if functional(n.target) in OPS_TO_PRESERVE]
        if calls:
            called |= set(map(functional, calls))
            constants = {} if subgraph.path else known_constants(program)
            support = OperatorSupport(subgraph, check, excluded, calls, constants)
            refused |= {functional(node.target) for node in support.reasons}
    # Decomposed norms have names that the caller may have chosen.
    if any(each.may_name_parts_of(_RMS_NORM) for each in (excluded, float32_ops)):
        refused.add(_RMS_NORM)
    # ExecuTorch has a kernel for pads with a number.
    refused |= {aten.pad.default} & ops_that_may_lack_a_size(program)
    return [op for op in OPS_TO_PRESERVE if op in called and op not in refused]


def ops_that_may_lack_a_size(program: ExportedProgram) -> set[object]:
    """Return the operators with a call that takes a size which no tensor of the call has.

    An engine reads sizes off its input tensors. The CPU may run an operator between the tensor
    that has the size and the call.
    """
    return {node.target for node in nodes_of(program) if nodes_without_sizes([node])}


def must_be_delegated(node: Node) -> bool:
    """Return whether a node may have no CPU kernel: its operator is preserved or another tool's."""
    target = aten_target(node)
    return target in OPS_TO_PRESERVE or is_fake_quantize(target)
