"""One partition of an Edge program, as a plain ATen program with contiguous boundary tensors.

Both kinds of builder start here: Torch-TensorRT's converters take the ATen graph, and the reference
builder makes a nested ExecuTorch program of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from executorch.exir.tensor import dim_order_from_stride
from torch._export.verifier import Verifier
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import ExportGraphSignature, InputKind, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_flatten

from trt_et.blob.model import Binding
from trt_et.errors import PartitionError
from trt_et.graph.constants import input_names
from trt_et.graph.symbolic_shapes import shape_range
from trt_et.lowering.canonical_names import canonical
from trt_et.lowering.edge_to_aten import to_aten
from trt_et.lowering.in_place_buffers import InPlaceBuffer
from trt_et.lowering.optimization_profiles import OptimizationProfile
from trt_et.lowering.sizes_from_inputs import replace_sizes

__all__ = ["DTYPE_NAMES", "LoweredPartition", "ProfileShapes", "lower_partition"]

DTYPE_NAMES: Final[dict[torch.dtype, str]] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float64: "float64",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "bool",
}


_CONTIGUOUS: Final[dict[str, Any]] = {"memory_format": torch.contiguous_format}


_Shape = tuple[int, ...]
ProfileShapes = Mapping[str, tuple[_Shape, _Shape, _Shape]]
"""Smallest, best tuned and largest shape of dynamic inputs, by name."""


@dataclass(frozen=True)
class LoweredPartition:
    """A partition that a builder can turn into an engine.

    Attributes:
        program: ATen dialect; parameters, buffers and constants are lifted and hold real values.
            Its user inputs and outputs are contiguous: where the delegate's tensor is not, the
            program permutes it, and the binding has the ``dim_order``.
            Its names say nothing of the program around it (``trt_et.lowering.canonical_names``).
        inputs: One binding for each user input, in the order of the delegate's arguments, named
            after its placeholder: ``input0``, ``input1``, ...
        outputs: One binding for each output, in order, named ``output0``, ``output1``, ...
        names: For every node of the program's graph, its name in the Edge program.
        sources: The Edge program's own weights and constants, by the placeholder's name. They may
            be laid out otherwise than :attr:`constants`, which are contiguous.
        profiles: The optimization profiles that were asked for: smallest, best tuned and largest
            shape of every dynamic input, by name. Empty: one, of the bindings' ranges.
        aliased_outputs: The outputs that may be written into an input's memory: nothing else in the
            program needs what was there. By the bindings' names.
    """

    program: ExportedProgram
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, torch.Tensor] = field(default_factory=dict)
    profiles: tuple[ProfileShapes, ...] = ()
    aliased_outputs: tuple[InPlaceBuffer, ...] = ()

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """The values of the placeholders that are no user inputs, by placeholder name."""
        state: Mapping[str, Any] = self.program.state_dict
        constants: Mapping[str, Any] = self.program.constants
        found: dict[str, torch.Tensor] = {}
        for spec in self.program.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT or not isinstance(spec.arg, TensorArgument):
                continue
            target = str(spec.target)
            found[spec.arg.name] = state[target] if target in state else constants[target]
        return found


def lower_partition(
    edge_program: ExportedProgram,
    partition: str,
    profiles: Sequence[OptimizationProfile] = (),
    aliased_outputs: Sequence[InPlaceBuffer] = (),
) -> LoweredPartition:
    """Turn a partition of an Edge program into a plain ATen program.

    Args:
        edge_program: The partition, as ``BackendDetails.preprocess`` gets it; it is not changed.
        partition: Its name, for messages.
        profiles: Ranges to tune an engine for; none: one profile, of the exported ranges.
        aliased_outputs: The buffers that may be written in place, by the Edge program's names.

    Raises:
        PartitionError: A boundary value is no tensor, or has a dtype that no engine takes.
    """
    graph, _ = to_aten(edge_program.graph)
    users = set(input_names(edge_program))
    sizes = replace_sizes(graph, users)
    users -= sizes
    dropped = sizes | _drop_unused_constants(graph, users)
    placeholders = [n for n in graph.nodes if n.op == "placeholder" and n.name in users]
    inputs = tuple(
        _contiguous_input(graph, node, f"input{index}", partition, profiles)
        for index, node in enumerate(placeholders)
    )
    writable = _bindings_of(aliased_outputs, placeholders, graph.output_node())
    outputs = _contiguous_outputs(graph, partition, profiles)
    _contiguous_constants(graph, users)
    graph.lint()
    renamed = canonical(graph, _signature(edge_program, graph, dropped), users)
    state = renamed.values(edge_program.state_dict)
    constants = renamed.values(edge_program.constants)
    tensors = {k: v for k, v in (state | constants).items() if isinstance(v, torch.Tensor)}
    module = GraphModule(torch.nn.Module(), renamed.graph)
    program = ExportedProgram(
        root=module,
        graph=renamed.graph,
        graph_signature=renamed.signature,
        state_dict=_dense(state),
        range_constraints=edge_program.range_constraints,
        module_call_graph=_call_graph(edge_program, len(inputs)),
        example_inputs=None,
        constants=_dense(constants),
        verifiers=[Verifier],
    )
    shapes = {
        binding.name: node.meta["val"].shape
        for binding, node in zip(inputs, placeholders, strict=True)
        if binding.is_dynamic
    }
    tuned = tuple(
        {name: _shapes(sizes, profile) for name, sizes in shapes.items()} for profile in profiles
    )
    return LoweredPartition(program, inputs, outputs, renamed.names, tensors, tuned, writable)


def _bindings_of(
    aliased_outputs: Sequence[InPlaceBuffer], placeholders: Sequence[Node], output: Node
) -> tuple[InPlaceBuffer, ...]:
    """Updates by the bindings' names, of those whose input and output the partition has."""
    inputs = {node.name: f"input{index}" for index, node in enumerate(placeholders)}
    results: Sequence[Any] = output.args[0]  # type: ignore[assignment]
    outputs = {
        result.name: f"output{index}"
        for index, result in enumerate(results)
        if isinstance(result, Node)
    }
    return tuple(
        replace(update, buffer=inputs[update.buffer], value=outputs[update.value])
        for update in aliased_outputs
        if update.buffer in inputs and update.value in outputs
    )


def _contiguous_input(
    graph: Graph,
    node: Node,
    name: str,
    partition: str,
    profiles: Sequence[OptimizationProfile],
) -> Binding:
    value = _boundary_tensor(node, partition, "input")
    order = _dim_order(value)
    binding = _binding(name, value, order, profiles, is_input=True)
    if order is not None:
        with graph.inserting_after(node):
            inverse = [order.index(dim) for dim in range(len(order))]
            view = graph.call_function(torch.ops.aten.permute.default, (node, inverse))
        with graph.inserting_after(view):
            dense = graph.call_function(torch.ops.aten.clone.default, (view,), _CONTIGUOUS)
        view.meta = dict(node.meta)
        dense.meta = {**node.meta, "val": value.contiguous()}
        node.replace_all_uses_with(dense, delete_user_cb=lambda user: user is not view)
        node.meta = {**node.meta, "val": value.permute(order)}
    return binding


def _drop_unused_constants(graph: Graph, users: set[str]) -> set[str]:
    """A weight that nothing uses comes with the first partition, to leave the program with it."""
    unused = [
        node
        for node in graph.nodes
        if node.op == "placeholder" and node.name not in users and not node.users
    ]
    for node in unused:
        graph.erase_node(node)
    return {node.name for node in unused}


def _contiguous_constants(graph: Graph, users: set[str]) -> None:
    """A channels_last model has its weights so too; kernels and engines want one layout."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name not in users and isinstance(value, torch.Tensor):
            node.meta = {**node.meta, "val": value.contiguous()}


def _dense(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _dense_value(value) for name, value in values.items()}


def _dense_value(value: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return value
    dense = value.contiguous()
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(dense.detach(), requires_grad=value.requires_grad)
    return dense


def _contiguous_outputs(
    graph: Graph, partition: str, profiles: Sequence[OptimizationProfile]
) -> tuple[Binding, ...]:
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    results: Sequence[object] = output.args[0]
    bindings, args = [], []
    for index, result in enumerate(results):
        if not isinstance(result, Node):
            raise PartitionError(
                f"partition {partition}: output {index} is {result!r}, not a tensor; exclude the "
                "node that produces it (excluded_ops=...)"
            )
        value = _boundary_tensor(result, partition, "output")
        order = _dim_order(value)
        bindings.append(_binding(f"output{index}", value, order, profiles, is_input=False))
        if order is not None:
            with graph.inserting_before(output):
                view = graph.call_function(torch.ops.aten.permute.default, (result, list(order)))
                dense = graph.call_function(torch.ops.aten.clone.default, (view,), _CONTIGUOUS)
            view.meta = {**result.meta, "val": value.permute(order)}
            dense.meta = dict(view.meta)
            result = dense
        args.append(result)
    output.args = (tuple(args),)
    return tuple(bindings)


def _signature(
    edge_program: ExportedProgram, graph: Graph, dropped: set[str]
) -> ExportGraphSignature:
    """The signature without what was dropped; its outputs named after what now produces them."""
    signature = edge_program.graph_signature
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    changed: ExportGraphSignature = replace(
        signature,
        input_specs=[spec for spec in signature.input_specs if spec.arg.name not in dropped],
        output_specs=[
            replace(spec, arg=TensorArgument(name=node.name))
            for spec, node in zip(signature.output_specs, output.args[0], strict=True)
        ],
    )
    return changed


def _call_graph(edge_program: ExportedProgram, inputs: int) -> list[ModuleCallEntry]:
    """The calling convention: ``inputs`` positional tensors."""
    (entry, *others) = edge_program.module_call_graph
    if entry.signature is None:
        return [entry, *others]
    in_spec = tree_flatten(((0,) * inputs, {}))[1]
    return [replace(entry, signature=replace(entry.signature, in_spec=in_spec)), *others]


def _boundary_tensor(node: Node, partition: str, what: str) -> torch.Tensor:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise PartitionError(
            f"partition {partition}: {what} {node.name} is {type(value).__name__}, not a tensor"
        )
    if value.dtype not in DTYPE_NAMES:
        raise PartitionError(
            f"partition {partition}: {what} {node.name} has dtype {value.dtype}; an engine takes "
            f"{', '.join(sorted(DTYPE_NAMES.values()))}"
        )
    return value


def _dim_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The ExecuTorch dim order of a tensor, None where it is contiguous."""
    order = tuple(int(dim) for dim in dim_order_from_stride(value.stride()))
    return None if order == tuple(range(value.dim())) else order


def _binding(
    name: str,
    value: torch.Tensor,
    order: tuple[int, ...] | None,
    profiles: Sequence[OptimizationProfile],
    *,
    is_input: bool,
) -> Binding:
    sizes = [value.shape[dim] for dim in (order or range(value.dim()))]
    low, opt, high = _shapes(sizes)
    shape = tuple(small if small == large else -1 for small, large in zip(low, high, strict=True))
    binding = Binding(name, DTYPE_NAMES[value.dtype], shape, is_input, dim_order=order)
    if -1 not in shape:
        return binding
    if profiles:
        lows, opts, highs = zip(*(_shapes(sizes, profile) for profile in profiles), strict=True)
        low = tuple(min(each) for each in zip(*lows, strict=True))
        high = tuple(max(each) for each in zip(*highs, strict=True))
        opt = opts[0]
    return replace(binding, min_shape=low, opt_shape=opt, max_shape=high)


def _shapes(
    sizes: Iterable[int | torch.SymInt], profile: OptimizationProfile | None = None
) -> tuple[_Shape, _Shape, _Shape]:
    """Smallest, best tuned and largest shape."""
    ranges = [shape_range(size, profile.symbols if profile else None) for size in sizes]
    return (
        tuple(low for low, _, _ in ranges),
        tuple(opt for _, opt, _ in ranges),
        tuple(high for _, _, high in ranges),
    )
