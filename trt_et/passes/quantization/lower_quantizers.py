"""Lower quantize operators that neither TensorRT nor ExecuTorch's kernels support.

modelopt and torchao add operators that ExecuTorch cannot emit ("Missing out variants"), and tensors
of 8-bit floats, which it has no kernels for. Operators with a TensorRT layer stay. This pass
replaces the others by float arithmetic with the same results, before the program is lowered.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputSpec
from torch.fx import Graph, Node, map_arg

from trt_et.graph.arguments import named_arguments
from trt_et.graph.constants import add_constant, constant_values
from trt_et.graph.inlining import inline
from trt_et.graph.operators import FLOATS
from trt_et.graph.subgraphs import Subgraph, copied_module, nodes_of, subgraphs
from trt_et.ops.fake_quantize import FOREIGN_NAME, fake_quantize
from trt_et.ops.quantize import FP8_CAPABILITY, constant_source, is_fp8
from trt_et.options import BuildOptions
from trt_et.partition.node_choice import NodeChoice
from trt_et.partition.operator_support import OperatorSupport
from trt_et.passes.quantization.int4_blocks import rows_of_blocks, split_int4, use_int4
from trt_et.passes.quantization.pt2e_fp8_to_float import compute_in_floats, quantizes_to_fp8
from trt_et.passes.quantization.widen_dynamic_int8 import INT_MM, widen_quantized

aten = torch.ops.aten
_log = logging.getLogger(__name__)

_Weights = Mapping[str, torch.Tensor]  # By placeholder name.
_FP8: Final = (torch.float8_e4m3fn, torch.float8_e5m2)
_ROUNDS: Final = "PT2E rounds to whole numbers before it makes fp8 of them, TensorRT does not"


def lower_quantize_ops(
    program: ExportedProgram, excluded: NodeChoice, options: BuildOptions
) -> ExportedProgram:
    """Lower unsupported quantize operators; older targets have no 8-bit floats."""
    if not any(map(_is_foreign, nodes_of(program))):
        return program
    return _Rewriting(program, excluded, options).result()


class _Rewriting:
    """One program that is being rewritten."""

    def __init__(
        self, program: ExportedProgram, excluded: NodeChoice, options: BuildOptions
    ) -> None:
        self._program = program
        self._excluded = excluded
        self._capability = _lowest(options.compute_capabilities)
        self._module = copied_module(program.graph_module)
        self._specs = list(program.graph_signature.input_specs)
        self._weights = constant_values(program)
        self._new: dict[str, torch.Tensor] = {}
        self._computed: Counter[str] = Counter()

    def result(self) -> ExportedProgram:
        """Return the program."""
        for subgraph in subgraphs(self._module):
            self._rewrite(subgraph)
        for reason, count in self._computed.items():
            _log.warning("%d quantize operators are computed in floats: %s", count, reason)
        signature = ExportGraphSignature(input_specs=self._specs, output_specs=self._outputs())
        constants = {**self._program.constants, **self._new}
        return self._program._update(self._module, signature, constants=constants)

    def _outputs(self) -> list[OutputSpec]:
        """Return the signature's outputs with the names of the new nodes."""
        results: Any = self._module.graph.output_node().args[0]
        specs = self._program.graph_signature.output_specs
        return [
            replace(spec, arg=replace(spec.arg, name=node.name)) if isinstance(node, Node) else spec
            for spec, node in zip(specs, results, strict=True)
        ]

    def _rewrite(self, subgraph: Subgraph) -> None:
        weights: _Weights = {} if subgraph.path else self._weights
        known = _computable(subgraph.graph, weights)
        fakes = [node for node in subgraph.graph.nodes if _is_fake(node)]
        for node, reason in self._reasons(subgraph, fakes, weights).items():
            if named_arguments(node)["exponent_bits"] not in (0, 4):
                continue  # The report has the reason.
            if node in known and (rows := rows_of_blocks(node)):
                self._keep_int4(node, rows)
                continue
            self._computed[reason] += 1
            if node in known:
                self._fold(node)
            else:
                inline(subgraph.module, node, fake_quantize)
        pairs = compute_in_floats(subgraph.module)
        if pairs:
            self._computed[_ROUNDS] += pairs
        if any(map(_has_rule, subgraph.graph.nodes)):
            widen_quantized(subgraph.graph, known)
        for node in list(subgraph.graph.nodes):
            if _is_fake(node):
                _reach_the_weight(node)
            elif node in known and (_dequantizes_fp8(node) or _adds_up_int8(node)):
                self._fold(node)
            elif _has_rule(node):
                inline(subgraph.module, node, _RULES[node.target._schema.name])
        subgraph.graph.lint()
        subgraph.module.recompile()

    def _reasons(self, subgraph: Subgraph, fakes: list[Node], weights: _Weights) -> dict[Node, str]:
        """Return why an engine cannot contain operators that quantize and dequantize."""
        operators = {n.target for n in fakes if isinstance(n.target, OpOverload)}
        support = OperatorSupport(
            subgraph, lambda _: None, self._excluded, operators, constants=weights
        )
        reasons = {node: support.reasons[node] for node in fakes if node in support.reasons}
        for node in fakes:
            if is_fp8(node) and self._capability < FP8_CAPABILITY:
                major, minor = self._capability
                reasons[node] = (
                    f"fp8 needs compute capability 8.9, and {major}.{minor} is among the targets"
                )
            elif self._is_for_the_cpu(node):
                reasons.setdefault(node, "the caller excluded the operators that they quantize for")
        return reasons

    def _is_for_the_cpu(self, node: Node) -> bool:
        return any(
            isinstance(user.target, OpOverload) and self._excluded.reason(user) is not None
            for user in node.users
        )

    def _fold(self, node: Node) -> None:
        node.replace_all_uses_with(self._add(_value(node, self._weights)))
        _erase(node)

    def _keep_int4(self, node: Node, rows: list[Node]) -> None:
        arguments = named_arguments(node)
        weight, scale = split_int4(
            _value(node.all_input_nodes[0], self._weights),
            _value(arguments["amax"], self._weights),
            tuple(rows[0].meta["val"].shape),
            narrow=arguments["narrow_range"],
        )
        use_int4(self._module, rows, self._add(weight), self._add(scale))
        _erase(node)

    def _add(self, value: torch.Tensor) -> Node:
        target = f"_trt_et_weight_{len(self._new)}"
        self._new[target] = value.detach().contiguous()
        return add_constant(self._module.graph, self._specs, target, self._new[target])


def _lowest(capabilities: tuple[str, ...]) -> tuple[int, int]:
    known = [tuple(int(part) for part in text.split(".")) for text in capabilities]
    return min(((major, minor) for major, minor in known), default=FP8_CAPABILITY)


def _is_fake(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.name == FOREIGN_NAME


def _is_foreign(node: Node) -> bool:
    return _is_fake(node) or _has_rule(node) or _dequantizes_fp8(node) or quantizes_to_fp8(node)


def _has_rule(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.name in _RULES


def _dequantizes_fp8(node: Node) -> bool:
    """Return whether a node casts 8-bit floats to wider ones."""
    value = node.meta.get("val")
    return (
        node.op == "call_function"
        and isinstance(value, torch.Tensor)
        and value.dtype in FLOATS
        and any(getattr(n.meta.get("val"), "dtype", None) in _FP8 for n in node.all_input_nodes)
    )


def _adds_up_int8(node: Node) -> bool:
    """Return whether a node sums int8 numbers in a wider dtype, which TensorRT cannot."""
    value = node.meta.get("val")
    return (
        node.target is aten.sum.dim_IntList
        and isinstance(value, torch.Tensor)
        and node.all_input_nodes[0].meta["val"].dtype is torch.int8
    )


def _computable(graph: Graph, weights: _Weights) -> set[Node]:
    """Return the nodes whose values depend on weights only."""
    constants: set[Node] = set()
    for node in graph.nodes:
        sources = node.all_input_nodes
        is_made = node.op == "call_function" and bool(sources) and constants.issuperset(sources)
        if is_made or (node.op == "placeholder" and node.name in weights):
            constants.add(node)
    return constants


def _value(node: Node, weights: _Weights) -> Any:  # noqa: ANN401
    if node.op == "placeholder":
        return weights[node.name]
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: _value(n, weights))
    function: Any = fake_quantize if _is_fake(node) else node.target
    with torch.no_grad():
        return function(*args, **kwargs)


def _reach_the_weight(node: Node) -> None:
    """Let a node take its amax directly, without the ``detach`` before it."""
    amax = named_arguments(node)["amax"]
    source = constant_source(amax)
    if source is None or source is amax:
        return
    if source.meta["val"].shape == amax.meta["val"].shape:
        node.replace_input_with(amax, source)
        _erase(amax)


def _erase(node: Node) -> None:
    """Erase a node that nothing uses, and the nodes that only it uses."""
    users = list(node.users)
    if node.op != "call_function" or not all(map(_asserts, users)):
        return
    for user in users:
        user.graph.erase_node(user)
    sources = node.all_input_nodes
    node.graph.erase_node(node)
    for source in sources:
        _erase(source)


def _asserts(node: Node) -> bool:
    return node.target is aten._assert_tensor_metadata.default


def _int_mm(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    # Exact up to 2**24, a sum of a thousand products; above, as exact as floats.
    return torch.mm(first.to(torch.float32), second.to(torch.float32)).to(torch.int32)


def _decomposed(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return getattr(torch.ops.torchao, name).default.decompose(*args, **kwargs)

    return call


_RULES: Final[dict[str, Callable[..., Any]]] = {
    INT_MM._schema.name: _int_mm,
    "torchao::choose_qparams_affine": _decomposed("choose_qparams_affine"),
    "torchao::quantize_affine": _decomposed("quantize_affine"),
    "torchao::dequantize_affine": _decomposed("dequantize_affine"),
}
