"""Translates a graph of plain ATen to an ONNX graph, by the functions of torch's exporter.

``torch.onnx.export`` decomposes the whole program again, which takes a second for a single call.
The support check translates each call, so this file calls the step after that one. Only it uses
private parts of ``torch.onnx``; ``tests/conversion/onnx/test_equal.py`` fails loudly when a release
changes them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node

from trt_et.conversion.decompose import decomposed_from
from trt_et.conversion.failures import failure_of
from trt_et.conversion.onnx.own_translations import register_own_translations
from trt_et.conversion.operators.reductions import too_many
from trt_et.errors import ConversionError

OPSET: Final = 20
"""The newest opset that the ONNX parser of TensorRT 10.0 takes."""

aten = torch.ops.aten
# Torch's exporter translates these to something else; torch decomposes most calls of them.
_WRONG: Final = frozenset(
    {
        aten.diagonal_scatter.default,
        aten.upsample_linear1d.default,
        aten.upsample_linear1d.vec,
        aten.scatter_reduce.two,  # Means of integers are rounded up, or not at all.
    }
)


@cache
def _registry() -> Any:  # noqa: ANN401
    with quiet():
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        registry = ONNXRegistry.from_torchlib(opset_version=OPSET)
        register_own_translations(registry)
        return registry


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter, which warns of missing packages, and the folding of constants."""
    levels = {log: log.level for log in map(logging.getLogger, ("torch.onnx", "onnxscript"))}
    try:
        for log in levels:
            log.setLevel(logging.ERROR)
        yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)


def is_translatable(target: object) -> bool:
    """Return whether the exporter has a function for an operator."""
    return bool(_registry().get_decomps(target))


@cache
def torch_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return torch's decompositions of the operators that the exporter has no function for."""
    from torch.onnx._internal.exporter import _decomp

    known = set(_decomp.get_onnx_implemented_overloads(_registry())) - _WRONG
    table = _decomp.create_onnx_friendly_decomposition_table(known)
    # A decomposition that makes a constant would be traced again with the constant's values.
    table.pop(torch.ops.aten.lift_fresh.default, None)
    return table


def translate(module: GraphModule) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return an ``onnx_ir.Model`` of a module, and its constants, by their names.

    The constants are inputs of the graph after the module's own.

    Raises:
        ConversionError: A call has no translation.
    """
    import onnx_ir as ir
    from torch.onnx._internal.exporter import _constants, _core

    graph, constants = _with_constants_as_inputs(module)
    model = ir.Model(
        ir.Graph([], [], nodes=[], name="partition", opset_imports={"": OPSET}),
        ir_version=_constants.ONNX_IR_VERSION,
    )
    opset = _core._get_onnxscript_opset(OPSET)
    values: dict[str, Any] = {}
    numbers: dict[Any, Any] = {}
    with quiet():
        for node in graph.nodes:
            try:
                if node.op == "placeholder":
                    _core._handle_placeholder_node(
                        node, values, graph_like=model.graph, lower="at_conversion", opset=opset
                    )
                elif node.op == "output":
                    _core._handle_output_node(node, values, model.graph)
                else:
                    _check_call(node)
                    _core._handle_call_function_node_with_lowering(
                        model,
                        node,
                        values,
                        graph_like=model.graph,
                        constant_farm=numbers,
                        registry=_registry(),
                        opset=opset,
                        node_name_to_local_functions={},
                    )
            except Exception as error:  # The exporter's functions raise any exception.
                raise ConversionError(_reason(node, error), decomposed_from(node)) from error
    return model, constants


def _check_call(node: Node) -> None:
    if node.target in _WRONG:
        raise ConversionError(f"torch's ONNX exporter translates {node.target} wrongly")
    if node.target is aten.topk.default and (reason := too_many(node)):
        raise ConversionError(reason)
    if node.target is aten.pad.default and len(node.args) > 2 and node.args[2] != "constant":
        sizes: Any = node.args[1]
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise ConversionError("ONNX repeats or mirrors no numbers while it cuts others off")


def _reason(node: Node, error: Exception) -> str:
    if isinstance(error, ConversionError):
        return error.reason
    if node.op == "call_function" and not is_translatable(node.target):
        return f"torch's ONNX exporter has no translation of {node.target}"
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return failure_of(f"torch's ONNX translation of {node.target}", error)


def _with_constants_as_inputs(module: GraphModule) -> tuple[Graph, dict[str, torch.Tensor]]:
    graph = Graph()
    constants: dict[str, torch.Tensor] = {}
    taken: dict[str, Node] = {}
    new = {node: graph.node_copy(node) for node in module.graph.find_nodes(op="placeholder")}
    for node in module.graph.find_nodes(op="get_attr"):
        target = str(node.target)
        if target not in taken:
            taken[target] = graph.placeholder(target.removeprefix("_constant_"))
            taken[target].meta = {"val": node.meta["val"]}
            constants[taken[target].name] = getattr(module, target).detach()
        new[node] = taken[target]
    for node in module.graph.nodes:
        if node not in new:
            new[node] = graph.node_copy(node, new.__getitem__)
    return graph, constants
