"""Compute with two real numbers in place of each complex one.

Neither ExecuTorch nor TensorRT computes with complex numbers. Rotary embeddings, spectrograms and
Fourier layers do, mostly between real inputs and real results. Here a complex tensor becomes two
tensors, its real and its imaginary part. ``torch._subclasses.complex_tensor`` writes most operators
in real ones; ``_FORMS`` has those that it lacks, or writes with more operators.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.complex_tensor import ComplexTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from trt_et.graph.arguments import writes_in_place
from trt_et.graph.constants import add_constant, constant_values
from trt_et.graph.insertion import fake_mode_of, insert_call
from trt_et.graph.marks import KEEPS_FLOAT32, inherit_marks
from trt_et.graph.subgraphs import copied_module, nodes_of, subgraphs
from trt_et.graph.tracing import unchanged_symbols
from trt_et.mends.fourier_transforms import FOURIER, WHOLE, NoRealForm

aten = torch.ops.aten

_log = logging.getLogger(__name__)

_ASSERTION: Final = aten._assert_tensor_metadata.default


def use_real_numbers(program: ExportedProgram) -> ExportedProgram:
    """Write the operators that make or use complex numbers in real ones.

    An operator that has no such form stays as it is, with a warning that names it.
    """
    concerned = [node for node in nodes_of(program) if _concerns(node)]
    if not concerned:
        return program
    if any(map(writes_in_place, concerned)):
        program = program.run_decompositions({})
    module = copied_module(program.graph_module)
    specs, constants = list(program.graph_signature.input_specs), dict(program.constants)
    parts = _parts_of_constants(program, module.graph, specs, constants)
    for subgraph in subgraphs(module):
        _Rewriting(subgraph.graph, parts).run()
    for node in module.graph.find_nodes(op="placeholder"):
        if node in parts and not node.users:
            module.graph.erase_node(node)
            specs = [spec for spec in specs if spec.arg.name != node.name]
    for subgraph in subgraphs(module):
        subgraph.module.recompile()
    signature = ExportGraphSignature(specs, program.graph_signature.output_specs)
    return program._update(module, signature, constants=constants)


def is_complex(node: Any) -> bool:  # noqa: ANN401
    """Return whether a node is a complex tensor, or has one among its results."""
    values = tree_leaves(node.meta.get("val")) if isinstance(node, Node) else ()
    return any(isinstance(value, Tensor) and value.is_complex() for value in values)


def _concerns(node: Node) -> bool:
    return (
        is_complex(node) or any(map(is_complex, node.all_input_nodes)) or node.target in WHOLE
    ) and node.op != "output"


def _parts_of_constants(
    program: ExportedProgram, graph: Graph, specs: list[Any], constants: dict[str, Any]
) -> dict[Node, Any]:
    """Add the parts of complex weights and constants to a program; return them."""
    placeholders = {node.name: node for node in graph.find_nodes(op="placeholder")}
    parts: dict[Node, Any] = {}
    for name, value in constant_values(program).items():
        if value.is_complex() and name in placeholders:
            both = []
            for part in ("real", "imag"):
                target = f"_trt_et_{part}_of_{name}"
                constants[target] = getattr(value.detach(), part).contiguous().clone()
                both.append(add_constant(graph, specs, target, constants[target]))
            parts[placeholders[name]] = tuple(both)
    return parts


class _Rewriting:
    """Rewrites one graph. ``parts`` has two nodes, or a list of pairs, for each complex node."""

    def __init__(self, graph: Graph, parts: dict[Node, Any]) -> None:
        self._graph, self._parts = graph, parts

    def run(self) -> None:
        for node in list(self._graph.nodes):
            if node.op == "call_function" and _concerns(node):
                self._rewrite(node)
        self._join(self._graph.output_node())
        for node in reversed(list(self._graph.nodes)):
            if node in self._parts and node.op != "placeholder" and not node.users:
                self._graph.erase_node(node)

    def _rewrite(self, node: Node) -> None:
        if node.target is _ASSERTION:
            self._graph.erase_node(node)
            return
        if node.target is operator.getitem:
            if node.args[0] in self._parts:
                self._finish(node, self._parts[node.args[0]][node.args[1]])  # type: ignore[index]
            return
        try:
            traced = self._traced(node)
        except Exception as error:  # Whatever torch raises.
            _log.warning(
                "%s (%s) computes with complex numbers and stays on the CPU%s. ExecuTorch has few "
                "kernels for complex numbers: write the call with the real and imaginary parts "
                "(torch.view_as_real), or compute it before the model",
                node.name,
                node.target,
                f": {error}" if isinstance(error, NoRealForm) else "",
            )
            self._join(node)
            return
        self._finish(node, self._inserted(node, traced))

    def _traced(self, node: Node) -> GraphModule:
        """Trace the call with the parts of its complex arguments in place of these."""
        sources, flat = node.all_input_nodes, self._flat_inputs(node)
        mode = fake_mode_of((*sources, node))
        assert mode is not None

        def call(*values: Any) -> Any:  # noqa: ANN401
            given = dict(zip(flat, values, strict=True))
            known = {
                source: ComplexTensor(*(given[part] for part in self._parts[source]))
                if source in self._parts
                else given[source]
                for source in sources
            }
            args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
            function: Any = WHOLE.get(node.target, node.target)
            with _RealNumbers():  # type: ignore[no-untyped-call]
                result = function(*args, **kwargs)
            return tree_map_only(ComplexTensor, lambda each: (each.re, each.im), result)

        with mode, unchanged_symbols(mode):
            traced = make_fx(call)(*(each.meta["val"] for each in flat))
        traced.graph.eliminate_dead_code()  # ComplexTensor asks where memory is pinned.
        if traced.graph.find_nodes(op="get_attr"):
            raise NoRealForm("its form in real numbers has constants")
        results = traced.graph.output_node().args[0]
        if isinstance(results, Node) and is_complex(node):
            raise NoRealForm("its result has a complex dtype")
        return traced

    def _flat_inputs(self, node: Node) -> list[Node]:
        flat: list[Node] = []
        for source in node.all_input_nodes:
            if is_complex(source) and source not in self._parts:
                self._parts[source] = self._split(source)
            flat += self._parts.get(source, (source,))
        return list(dict.fromkeys(flat))

    def _split(self, source: Node) -> tuple[Node, Node]:
        """Return the parts of a complex tensor that an input or an operator left alone gives."""
        after = source.next
        while after.op == "placeholder":
            after = after.next
        pairs = insert_call(after, aten.view_as_real.default, source)
        real, imaginary = (insert_call(after, aten.select.int, pairs, -1, i) for i in (0, 1))
        return real, imaginary

    def _inserted(self, node: Node, traced: GraphModule) -> Any:  # noqa: ANN401
        new: dict[Node, Node] = {}
        inputs = iter(self._flat_inputs(node))
        with self._graph.inserting_before(node):
            for part in traced.graph.nodes:
                if part.op == "placeholder":
                    new[part] = next(inputs)
                elif part.op == "output":
                    return torch.fx.map_arg(part.args[0], new.__getitem__)
                elif part.target is aten.alias.default:
                    new[part] = new[part.args[0]]
                else:
                    new[part] = self._graph.node_copy(part, new.__getitem__)
                    inherit_marks(new[part], node)
                    if node.target in WHOLE or str(node.target).startswith("aten.fft_"):
                        KEEPS_FLOAT32.write(new[part], "rounded samples hide quiet frequencies")
        raise AssertionError("a traced graph has an output")

    def _finish(self, node: Node, result: Any) -> None:  # noqa: ANN401
        if isinstance(node.meta["val"], Tensor) and not is_complex(node):
            outputs = self._graph.output_node().all_input_nodes
            if node in outputs:  # It has a name of its own.
                if result in outputs or result.op == "placeholder":
                    result = insert_call(node, aten.alias.default, result)
                name = node.name
                node.replace_all_uses_with(result)
                self._graph.erase_node(node)
                result.name = name
            else:
                node.replace_all_uses_with(result)
                self._graph.erase_node(node)
        else:
            self._parts[node] = result

    def _join(self, user: Node) -> None:
        """Give a node that stays as it is complex tensors again."""
        for source in user.all_input_nodes:
            if source in self._parts and source.op != "placeholder":
                joined = insert_call(user, aten.complex.default, *self._parts[source])
                user.replace_input_with(source, joined)
                if user.op == "output":
                    _log.warning(
                        "the output %s is a complex tensor, and ExecuTorch 1.5 has no operator "
                        "that makes one: return torch.view_as_real of it",
                        source.name,
                    )
                    name = source.name
                    source.name = f"{name}_parts"
                    joined.name = name


class _RealNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes what makes complex tensors in pairs of real ones."""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        kwargs = dict(kwargs or {})
        form = _FORMS.get(func.overloadpacket)
        if form is not None:
            result = form(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func.overloadpacket in _LINEAR:
            return _by_parts(func, args, kwargs)
        leaves = tree_leaves((args, kwargs))
        dtype = kwargs.get("dtype")
        is_made = isinstance(dtype, torch.dtype) and dtype.is_complex
        if not any(isinstance(leaf, ComplexTensor) for leaf in leaves) and (
            is_made or any(isinstance(leaf, complex) for leaf in leaves)
        ):
            if not any(isinstance(leaf, Tensor) for leaf in leaves):
                return _constructed(func, args, kwargs)
            args, kwargs = tree_map_only(Tensor, _widened, (args, kwargs))
        return func(*args, **kwargs)


def _by_parts(func: OpOverload, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Apply an operator to the real parts and to the imaginary parts."""
    results = []
    for name in ("re", "im"):
        given = tree_map_only(ComplexTensor, operator.attrgetter(name), (args, kwargs))
        results.append(func(*given[0], **given[1]))
    return tree_map(lambda real, imaginary: ComplexTensor(real, imaginary), *results)


def _constructed(func: OpOverload, args: Any, kwargs: Any) -> ComplexTensor:  # noqa: ANN401
    """Make the parts of zeros, ones and other constants."""
    dtype = kwargs.get("dtype") or torch.complex64
    parts = []
    for part in ("real", "imag"):
        given = tree_map(lambda each, part=part: _part_of_number(each, part), (args, kwargs))
        parts.append(func(*given[0], **{**given[1], "dtype": dtype.to_real()}))
    real, imaginary = parts
    numbers = [leaf for leaf in tree_leaves(args) if isinstance(leaf, complex)]
    return ComplexTensor(real, imaginary if numbers else torch.zeros_like(real))


def _part_of_number(value: Any, part: str) -> Any:  # noqa: ANN401
    return getattr(value, part) if isinstance(value, complex) else value


def _widened(value: Tensor) -> ComplexTensor:
    real = value if value.is_floating_point() else value.to(torch.get_default_dtype())
    return ComplexTensor(real, torch.zeros_like(real))


def _parts(value: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the parts of a number or tensor; None for an imaginary part of 0."""
    if isinstance(value, ComplexTensor):
        return value.re, value.im
    return (value.real, value.imag) if isinstance(value, complex) else (value, None)


def _product(self: Any, other: Any) -> Any:  # noqa: ANN401
    (a, b), (c, d) = _parts(self), _parts(other)
    if b is None and d is None:
        return NotImplemented
    if b is None or d is None:
        factor, (real, imaginary) = (a, (c, d)) if b is None else (c, (a, b))
        return ComplexTensor(*_promoted(real * factor, imaginary * factor))
    return ComplexTensor(*_promoted(a * c - b * d, a * d + b * c))


def _quotient(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:  # noqa: ANN401
    (a, b), (c, d) = _parts(self), _parts(other)
    if b is None or d is not None or rounding_mode is not None:
        return NotImplemented
    return ComplexTensor(*_promoted(a / c, b / c))


def _sum(self: Any, other: Any, *, alpha: Any = 1) -> Any:  # noqa: ANN401
    (a, b), (c, d) = _parts(self), _parts(other)
    if (b is None and d is None) or isinstance(alpha, complex):
        return NotImplemented
    real = torch.add(a, c, alpha=alpha) if isinstance(a, Tensor) else a + alpha * c
    if d is None:
        return ComplexTensor(*_promoted(real, b))
    imaginary = alpha * d if b is None else torch.add(b, d, alpha=alpha)
    return ComplexTensor(*_promoted(real, imaginary))


def _difference(self: Any, other: Any, *, alpha: Any = 1) -> Any:  # noqa: ANN401
    return _sum(self, other, alpha=-alpha)


def _reverse_difference(self: Any, other: Any, alpha: Any = 1) -> Any:  # noqa: ANN401
    return _sum(other, self, alpha=-alpha)


def _view(self: Any, shape: Any) -> Any:  # noqa: ANN401
    if isinstance(self, ComplexTensor) and isinstance(shape, torch.dtype):
        return torch.stack([self.re, self.im], -1).flatten(-2).view(shape)
    return NotImplemented


def _promoted(real: Any, imaginary: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
    """Return both parts in one dtype and shape."""
    if not isinstance(imaginary, Tensor):
        imaginary = torch.full_like(real, imaginary)
    elif not isinstance(real, Tensor):
        real = torch.full_like(imaginary, real)
    dtype = torch.promote_types(real.dtype, imaginary.dtype)
    shape = torch.broadcast_shapes(real.shape, imaginary.shape)  # type: ignore[no-untyped-call]
    return real.to(dtype).expand(shape), imaginary.to(dtype).expand(shape)


def _power(self: Any, exponent: Any) -> Any:  # noqa: ANN401
    """Compute a power without logarithms, which 0 has none of."""
    if not isinstance(self, ComplexTensor) or not isinstance(exponent, int | float):
        return NotImplemented
    if exponent in (1, 2, 3, 4):
        return reduce(_product, [self] * int(exponent))
    return _polar(self.abs() ** exponent, self.angle() * exponent)


def _absolute(self: Any) -> Any:  # noqa: ANN401
    return torch.hypot(self.re, self.im) if isinstance(self, ComplexTensor) else NotImplemented


def _polar(abs: Tensor, angle: Tensor) -> ComplexTensor:
    return ComplexTensor(abs * angle.cos(), abs * angle.sin())


def _part(name: str) -> Callable[[Any], Any]:
    return lambda self: getattr(self, name) if isinstance(self, ComplexTensor) else NotImplemented


# Operators that move or add numbers, which torch's ComplexTensor lacks.
_LINEAR: Final = frozenset(
    {aten.unbind, aten.roll, aten.tril, aten.triu, aten.unfold, aten.diag_embed, aten.index_put}
    | {aten.scatter, aten.as_strided, aten.unsafe_split, aten.rot90, aten.take, aten.unsafe_chunk}
    | {aten.repeat_interleave, aten.pixel_shuffle, aten.reflection_pad1d, aten.replication_pad1d}
)

_FORMS: Final[Mapping[Any, Callable[..., Any]]] = {
    aten.complex: ComplexTensor,
    aten.view_as_complex: lambda self: ComplexTensor(self.select(-1, 0), self.select(-1, 1)),
    aten.polar: _polar,
    aten.real: _part("re"),
    aten.imag: _part("im"),
    aten.mul: _product,
    aten.div: _quotient,
    aten.add: _sum,
    aten.sub: _difference,
    aten.rsub: _reverse_difference,
    aten.view: _view,
    aten.pow: _power,
    aten.abs: _absolute,
    **FOURIER,
}
