"""Checks how a model was exported."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram, default_decompositions
from torch.fx import Node

from trt_et.errors import PartitionError
from trt_et.graph.arguments import named_arguments
from trt_et.graph.modules import source_of
from trt_et.graph.subgraphs import nodes_of

_log = logging.getLogger(__name__)

# ExecuTorch's checks let them pass.
_EXCEPTIONS: Final = frozenset(
    {torch.ops.aten.mkldnn_rnn_layer.default, torch.ops.aten._upsample_bilinear2d_aa.default}
    | {torch.ops.aten.quantize_per_tensor.default, torch.ops.aten.dequantize.self}
    | {torch.ops.aten.max.default, torch.ops.aten.min.default, torch.ops.aten.full_like.default}
)
# The name that prepare_pt2e gives to the modules that it adds.
_OBSERVER: Final = re.compile(r"(?:.*\.)?activation_post_process_\d+(?=\.)")
# Operators that compute something else in training mode, and the argument that chooses it.
_TRAINING: Final = {
    "aten::dropout": "train",
    "aten::feature_dropout": "train",
    "aten::alpha_dropout": "train",
    "aten::feature_alpha_dropout": "train",
    "aten::native_dropout": "train",
    "aten::rrelu": "training",
    "aten::batch_norm": "training",
    "aten::native_batch_norm": "training",
    "aten::_native_batch_norm_legit": "training",
    "aten::_native_batch_norm_legit_functional": "training",
}


def check_converted(program: ExportedProgram) -> None:
    """Check that a program was not exported between ``prepare_pt2e`` and ``convert_pt2e``.

    Raises:
        PartitionError: It has observers.
    """
    buffers = program.graph_signature.inputs_to_buffers.values()
    observers = sorted({match[0] for buffer in buffers if (match := _OBSERVER.match(buffer))})
    if observers:
        raise PartitionError(
            f"the program still has {len(observers)} observer(s) of prepare_pt2e, "
            f"such as {observers[0]}; expected none. Calibrate the prepared model, then export "
            "convert_pt2e(prepared)"
        )


def check_values(program: ExportedProgram) -> None:
    """Check that the weights of a program have values.

    Raises:
        PartitionError: Some are on the meta device.
    """
    weights = {**program.state_dict, **program.constants}.items()
    empty = [n for n, each in weights if isinstance(each, torch.Tensor) and each.is_meta]
    if empty:
        others = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise PartitionError(
            f"weight {empty[0]}{others}: on the meta device, without values, which engines need. "
            "Load them before torch.export: model.load_state_dict(weights, assign=True), or "
            "from_pretrained without init_empty_weights; buffers need values, too"
        )


def warn_training_mode(program: ExportedProgram) -> None:
    """Warn if an operator of the program, as ``torch.export`` returns it, is in training mode."""
    nodes = [node for node in program.graph.nodes if _is_training(node)]
    if nodes:
        _log.warning(
            "%d operator(s) are in training mode, such as %s (%s): outputs are random or depend on "
            "the other samples of the batch. Call model.eval() before torch.export",
            len(nodes),
            nodes[0].name,
            nodes[0].target,
        )


def warn_while_loop(program: ExportedProgram) -> None:
    """Warn of a loop that ExecuTorch cannot run; its own messages come late, or name another."""
    loops = [n for n in nodes_of(program) if n.target is torch.ops.higher_order.while_loop]
    if loops:
        _log.warning(
            "%s is a while_loop, and ExecuTorch 1.5 runs none: to_executorch() refuses it "
            "(Unsupported control flow operator), or a check does before. Write a Python loop of "
            "a fixed number of steps, with torch.where for results that are done, or export one "
            "step as a method and repeat it in the application",
            loops[0].name,
        )


def warn_extremes_of_sizes(program: ExportedProgram) -> None:
    """Warn of the larger or smaller of two sizes; ExecuTorch's own error has no text."""
    extremes = [n for n in nodes_of(program) if n.target in (torch.sym_max, torch.sym_min)]
    if extremes:
        _log.warning(
            "%s is the larger or smaller of two sizes; ExecuTorch 1.5's check of Edge programs "
            "refuses it (AssertionError), and its runtime does not. Pass "
            "compile_config=EdgeCompileConfig(_check_ir_validity=False)",
            extremes[0].name,
        )


def warn_unknown_operators(program: ExportedProgram) -> None:
    """Warn of operators that ExecuTorch's Edge dialect does not know; its error names no line."""
    first = {n.target: n for n in reversed(nodes_of(program)) if _is_beyond_edge(n.target)}
    for target, node in first.items():
        _log.warning(
            "%s calls %s (%s), which ExecuTorch's Edge dialect does not know: lowering ends with "
            "SpecViolationError (not in Core ATen opset). Write it with other operators of torch",
            node.name,
            target,
            source_of(node) or "unknown line",
        )


def warn_bicubic_factors(program: ExportedProgram) -> None:
    """Warn of sizes that ExecuTorch refuses to compute; its own error has no text."""
    for node in nodes_of(program):
        if node.target is torch.ops.aten.upsample_bicubic2d.vec:
            given = named_arguments(node)
            sizes = zip(
                given["input"].meta["val"].shape[2:], given["scale_factors"] or (), strict=False
            )
            if any(isinstance(size, torch.SymInt) and factor % 1 for size, factor in sizes):
                _log.warning(
                    "%s (%s) resizes dynamic sizes by %s with bicubic interpolation, and "
                    "ExecuTorch 1.5 refuses to compute such sizes (AssertionError). Pass an "
                    "integer factor, or mode='bilinear'",
                    node.name,
                    source_of(node) or "unknown line",
                    given["scale_factors"],
                )


def _is_beyond_edge(target: object) -> bool:
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return False
    is_known = torch.Tag.core in target.tags or torch.Tag.view_copy in target.tags
    implicit = torch._C.DispatchKey.CompositeImplicitAutograd
    return not (
        is_known
        or target.is_view
        or target._schema.is_mutable
        or not target._schema.returns  # An assertion.
        or target in _EXCEPTIONS
        or target in _decomposed()
        or target.has_kernel_for_dispatch_key(implicit)
    )


@cache
def _decomposed() -> frozenset[OpOverload]:
    """Return the operators that ``to_edge`` decomposes."""
    from executorch.exir.tracer import _default_decomposition_table

    return frozenset([*_default_decomposition_table(), *default_decompositions()])


def _is_training(node: Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return False
    name = _TRAINING.get(node.target._schema.name)
    return name is not None and bool(named_arguments(node).get(name))
