"""Which nodes of an Edge program go into an engine, and why the others do not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import torch
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node

from trt_et.graph.subgraphs import Subgraph, subgraphs
from trt_et.graph.symbolic_shapes import UnboundedDimension, shape_range
from trt_et.lowering.edge_to_aten import aten_target, qualified_name, to_aten
from trt_et.ops.prebuilt_engine import is_prebuilt
from trt_et.ops.quantize import (
    QUANTIZED_DTYPES,
    constant_source,
    is_fake_quantize,
    is_quantization,
    is_weight_cast,
    moves_numbers,
    quantization_refusal,
    scale_arguments,
)
from trt_et.partition.excluded_ops import ExcludedOps
from trt_et.partition.internal_sizes import is_size

__all__ = [
    "COMPUTES_A_SIZE",
    "OPS_TO_PRESERVE",
    "OperatorSupport",
    "SupportCheck",
    "is_compute",
    "must_be_delegated",
    "ops_to_preserve",
]

SupportCheck = Callable[[Node], str | None]
"""Why a node of a plain ATen graph is unsupported; None if it is supported."""

COMPUTES_A_SIZE: Final = "it computes a size, not a tensor"

_SIZES: Final = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)

_DTYPES: Final = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.bool,
    }
)

# Scales may be float64, which they are not in the engine.
_QUANTIZATION_DTYPES: Final = QUANTIZED_DTYPES | {torch.float64}

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

# Nodes that only rename, rearrange or quantize: alone, they are no work for an engine.
_VIEWS: Final = frozenset(
    {
        "aten::alias_copy",
        "aten::clone",
        "aten::detach_copy",
        "aten::expand_copy",
        "aten::permute_copy",
        "aten::reshape",
        "aten::select_copy",
        "aten::slice_copy",
        "aten::split_copy",
        "aten::split_with_sizes_copy",
        "aten::squeeze_copy",
        "aten::t_copy",
        "aten::transpose_copy",
        "aten::unsqueeze_copy",
        "aten::view_copy",
        "dim_order_ops::_clone_dim_order",
        "quantized_decomposed::dequantize_per_channel",
        "quantized_decomposed::dequantize_per_tensor",
        "quantized_decomposed::quantize_per_channel",
        "quantized_decomposed::quantize_per_tensor",
    }
)
_SOURCE_UNSUPPORTED: Final = "the operator whose result it selects stays on the CPU"


class OperatorSupport:
    """The nodes of one graph that an engine can hold.

    Args:
        subgraph: The graph, in the Edge dialect (or ATen); not changed.
        check: Whether the builder supports a node of the equivalent ATen graph.
        excluded: What the caller leaves to the CPU.
        only: The operators to look at; None: all. Other nodes count as unsupported.
        constants: The names of the graph's placeholders whose values never change.

    Attributes:
        subgraph: The graph.
        reasons: For every ``call_function`` node that stays out, why.
        prebuilt: The engines that the program holds already, each with the nodes that pick its
            results; they count as unsupported, since nothing else can be in such an engine.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        check: SupportCheck,
        excluded: ExcludedOps | None = None,
        only: Collection[OpOverload] | None = None,
        constants: Collection[str] = (),
    ) -> None:
        self.subgraph = subgraph
        self._constants = frozenset(constants)
        self._equivalent: Mapping[Node, Node] = to_aten(subgraph.graph).nodes
        self._check = check
        self._excluded = excluded or ExcludedOps()
        self.reasons: dict[Node, str] = {}
        self.prebuilt: dict[Node, list[Node]] = {}
        self._supported: set[Node] = set()
        for node in subgraph.graph.nodes:
            if node.op != "call_function" or (only is not None and node.target not in only):
                continue
            if is_prebuilt(aten_target(node)):
                self.prebuilt[node] = [node]
                continue
            if node.target is operator.getitem and node.args[0] in self.prebuilt:
                self.prebuilt[node.args[0]].append(node)
                continue
            reason = self._reason(node)
            if reason is None:
                self._supported.add(node)
            else:
                self.reasons[node] = reason

    def is_supported(self, node: Node) -> bool:
        """Whether an engine can hold the node."""
        return node in self._supported

    def is_cast_of_weight(self, node: Node) -> bool:
        """Whether a node makes floats of an int8 weight."""
        return is_weight_cast(self._equivalent[node])

    def cut_off_from_weights(self, nodes: Collection[Node]) -> list[Node]:
        """The nodes of a partition that need a weight's values, where it does not reach them.

        The weight may be reshaped on its way; that must be in the partition too, and an int8 weight
        must not leave it: TensorRT has such tensors between quantize layers only.
        """
        inside = {self._equivalent[node] for node in nodes}
        return [
            node
            for node in nodes
            if not all(
                _is_within(value, inside) for value in self._needed_values(self._equivalent[node])
            )
            or (self._is_int8_weight(node) and not set(nodes).issuperset(node.users))
        ]

    def _needed_values(self, node: Node) -> list[object]:
        if is_weight_cast(node):
            return [node.args[0]]
        return list(scale_arguments(node).values()) if is_quantization(node.target) else []

    def _is_int8_weight(self, node: Node) -> bool:
        plain = self._equivalent[node]
        value = plain.meta.get("val")
        return (
            moves_numbers(plain)
            and isinstance(value, torch.Tensor)
            and value.dtype in QUANTIZED_DTYPES
        )

    def accept(self, sizes: Iterable[Node]) -> None:
        """Take sizes in that a partition computes itself."""
        for node in sizes:
            self._supported.add(node)
            del self.reasons[node]

    def refuse(self, nodes: Iterable[Node], reason: str) -> None:
        """Take nodes out again, for a reason that only shows in the whole partition."""
        for node in nodes:
            self._supported.discard(node)
            self.reasons[node] = reason
            picks = [user for user in node.users if user.target is operator.getitem]
            self.refuse(picks, _SOURCE_UNSUPPORTED)

    def _reason(self, node: Node) -> str | None:
        if node.target is executorch_call_delegate:
            return "it is delegated already"
        if node.target is operator.getitem:
            return self._reason_for_getitem(node)
        target = aten_target(node)
        if isinstance(target, HigherOrderOperator):
            return "control flow stays on the CPU"
        if self.subgraph.obstacle is not None:
            return self.subgraph.obstacle
        if not isinstance(target, OpOverload) or isinstance(node.meta.get("val"), _SIZES):
            return COMPUTES_A_SIZE
        reason = self._excluded.reason(node, self.subgraph)
        if reason is not None:
            return reason
        if _draws_random_numbers(node, target):
            # Torch-TensorRT's converters draw the numbers once, when the engine is built.
            return "it draws random numbers, which an engine would freeze"
        plain = self._equivalent[node]
        if is_quantization(target):
            refused = quantization_refusal(plain) or self._reason_for_scales(plain)
            return refused or self._reason_for_values(node, _DTYPES | _QUANTIZATION_DTYPES)
        if not self._is_constant(plain.args[0] if plain.args else None):
            return self._reason_for_values(node) or self._check(plain)
        # Weights that are int8: an engine keeps them so, up to where they become floats.
        if is_weight_cast(plain):
            return self._reason_for_values(node, _DTYPES | QUANTIZED_DTYPES)
        dtypes = _DTYPES | QUANTIZED_DTYPES if moves_numbers(plain) else _DTYPES
        return self._reason_for_values(node, dtypes) or self._check(plain)

    def _is_constant(self, value: object) -> bool:
        """Whether the numbers of a value are those of a weight."""
        source = constant_source(value)
        return source is not None and source.op == "placeholder" and source.name in self._constants

    def _reason_for_scales(self, node: Node) -> str | None:
        for name, value in scale_arguments(node).items():
            if not self._is_constant(value):
                return f"its {name} come from outside of its graph; TensorRT's are fixed"
        return None

    def _reason_for_getitem(self, node: Node) -> str | None:
        producer = node.args[0]
        if isinstance(producer, Node):
            if producer.target is executorch_call_delegate:
                return "it is an output of an existing delegate"
            if producer in self._supported:
                return None
        return _SOURCE_UNSUPPORTED

    def _reason_for_values(
        self, node: Node, dtypes: frozenset[torch.dtype] = _DTYPES
    ) -> str | None:
        values = [_used_results(node)]
        for argument in node.all_input_nodes:
            if argument.op == "get_attr" and not isinstance(argument.meta.get("val"), torch.Tensor):
                return f"its argument {argument.name} is a submodule"
            values.append(argument.meta.get("val"))
        for value in _flatten(values):
            reason = _reason_for_value(value, dtypes)
            if reason is not None:
                return reason
        return None


def _is_within(value: object, inside: Collection[Node]) -> bool:
    """Whether all that is between a weight and its use is among these nodes."""
    while isinstance(value, Node) and moves_numbers(value):
        if value not in inside:
            return False
        value = value.args[0]
    return True


def _draws_random_numbers(node: Node, target: OpOverload) -> bool:
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    # Attention is tagged for its dropout, which is off in a model that is evaluated.
    for index, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            default = argument.default_value
            given = node.args[index] if index < len(node.args) else default
            return bool(node.kwargs.get("dropout_p", given) != 0)
    return True


def _used_results(node: Node) -> object:
    """The results that something reads: batch norm, say, has two more, without elements."""
    value = node.meta.get("val")
    if not isinstance(value, tuple | list):
        return value
    picked = [user.args[1] for user in node.users if user.target is operator.getitem]
    return [value[index] for index in picked if isinstance(index, int)]


def _reason_for_value(value: object, dtypes: frozenset[torch.dtype]) -> str | None:
    if value is None:
        return None
    if isinstance(value, torch.SymInt):
        return _reason_for_sizes([value])
    if not isinstance(value, torch.Tensor):
        return f"it takes or returns a {type(value).__name__}"
    if value.dtype not in dtypes:
        if value.dtype in QUANTIZED_DTYPES:
            return f"TensorRT quantizes to {value.dtype}, but does not compute with it"
        return f"TensorRT has no {value.dtype} tensors"
    reason = _reason_for_sizes(value.shape)
    if reason is not None:
        return reason
    if any(isinstance(size, int) and size == 0 for size in value.shape):
        return "a tensor without elements is left to the CPU"
    if value.layout is not torch.strided:
        return f"TensorRT has no {value.layout} tensors"
    return None


def _reason_for_sizes(sizes: Iterable[int | torch.SymInt]) -> str | None:
    for size in sizes:
        try:
            shape_range(size)
        except UnboundedDimension as error:
            return str(error)
    return None


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


def is_compute(nodes: Iterable[Node]) -> bool:
    """Whether the nodes do more than rename, rearrange and quantize tensors."""
    return any(
        node.target is not operator.getitem
        and not is_size(node)
        and qualified_name(node).rpartition(".")[0] not in _VIEWS
        for node in nodes
    )


def _flatten(values: Iterable[object]) -> Iterable[object]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flatten(value)
        elif not isinstance(value, LoweredBackendModule):
            yield value
