"""Finds mutated buffers in the graph that ExecuTorch plans, and moves them to their GPU."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.memory import alloc
from executorch.exir.schema import DeviceType
from executorch.exir.tensor import TensorSpec
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec
from torch.fx import Graph, GraphModule, Node

from trt_et.blob.model import BACKEND_ID

# This compile spec lists the inputs that are state, such as "0,3". The delegate clears them before
# its first run.
_STATE_INPUTS: Final = "state_inputs"
# This compile spec lists the tensors, inputs then outputs, that ExecuTorch plans on the host, and
# the delegate keeps on its GPU.
_DEVICE_STATE: Final = "device_state"


@dataclass(frozen=True)
class State:
    """A mutated buffer that delegates of one method only read.

    In the graph that is planned: ``buffer`` -> ``_h2d_copy`` -> delegates. The method returns it
    as it is (``buffer.copy_(buffer)``): another method writes it.

    Attributes:
        buffer: The placeholder.
    """

    buffer: Node

    @property
    def uploads(self) -> list[Node]:
        """Return the copies of the buffer to a GPU."""
        return [user for user in self.buffer.users if is_copy(user, "_h2d_copy")]

    @property
    def readers(self) -> list[Node]:
        """Return the users of these copies, in program order."""
        order = {node: index for index, node in enumerate(self.buffer.graph.nodes)}
        readers = {user for upload in self.uploads for user in upload.users}
        return sorted(readers, key=order.__getitem__)

    @property
    def devices(self) -> set[tuple[DeviceType, int]]:
        """Return the devices that the buffer is needed on."""
        return set(map(device_of, self.uploads))

    @property
    def returned(self) -> Node:
        """Return the node that takes the buffer to the end of the method."""
        return self.buffer.graph.output_node()

    def can_move(self) -> bool:
        """Check that reads in place give the same results as the copies."""
        spec, readers = self.buffer.meta["spec"], self.readers
        return (
            spec.device is DeviceType.CPU
            and not self.buffer.meta.get("et_init_buffer")
            and set(self.buffer.users) == {self.returned, *self.uploads}
            and len(self.devices) == 1
            and all(reader.target is executorch_call_delegate for reader in readers)
            and all(_backend_id(reader) == BACKEND_ID for reader in readers[:1])
        )

    def move(self, signature: ExportGraphSignature) -> None:
        """Plan the buffer on the GPU, and drop the copies."""
        del signature
        spec: TensorSpec = self.buffer.meta["spec"]
        ((spec.device, spec.device_index),) = self.devices
        for upload in self.uploads:
            upload.replace_all_uses_with(self.buffer)
            erase(upload)


@dataclass(frozen=True)
class WrittenState(State):
    """A mutated buffer, and the delegate that makes its new value.

    In the graph that is planned, also: ``writer`` -> ``new`` (a getitem) -> ``_d2h_copy`` ->
    ``write_back`` (``copy_``) into ``buffer``.

    Attributes:
        write_back: The copy into the buffer.
        new: The new value.
        writer: The delegate call that makes it.
        output: The index of ``write_back`` among the method's outputs.
    """

    write_back: Node
    new: Node
    writer: Node
    output: int

    @property
    def devices(self) -> set[tuple[DeviceType, int]]:
        """Return the devices that the buffer is needed on."""
        return {*super().devices, device_of(self.new)}

    @property
    def returned(self) -> Node:
        """Return the copy into the buffer."""
        return self.write_back

    def can_move(self) -> bool:
        """Check that reads and writes in place give the same results as the copies."""
        nodes = list(self.buffer.graph.nodes)
        last = nodes.index(self.writer)
        return (
            super().can_move()
            and self.new.meta["spec"].device is not DeviceType.CPU
            and _layout(self.buffer.meta["spec"]) == _layout(self.new.meta["spec"])
            and _backend_id(self.writer) == BACKEND_ID
            and all(nodes.index(reader) <= last for reader in self.readers)
        )

    def move(self, signature: ExportGraphSignature) -> None:
        """Give the new value the buffer's memory, on the GPU, and drop the copies."""
        super().move(signature)
        spec: TensorSpec = self.buffer.meta["spec"]
        self.new.meta["spec"] = spec
        _replace_result(self.writer, int(self.new.args[1]), spec)  # type: ignore[arg-type]
        download = self.write_back.args[1]
        self.write_back.replace_all_uses_with(self.new)
        erase(self.write_back)
        if isinstance(download, Node) and not download.users:
            erase(download)
        target = signature.inputs_to_buffers[self.buffer.name]
        for output in filter(_is_new_value, signature.output_specs):
            if output.target == target:
                output.arg.name = self.new.name
        _replace_result(self.new.graph.output_node(), self.output, spec)


def move_to_device(
    module: GraphModule, signature: ExportGraphSignature, states: Iterable[State]
) -> None:
    """Plan buffers on the GPU that makes their new values.

    Args:
        module: The program to plan.
        signature: Its signature.
        states: The buffers that can move.
    """
    remaining = set()
    for state in states:
        state.move(signature)
        remaining.add(id(state.buffer.meta["spec"]))
    for call, inputs, _ in delegate_calls(module):
        _add_spec(call, _STATE_INPUTS, inputs, remaining)
        remaining -= set(map(id, inputs))  # Only the first call that reads a buffer clears it.
    module.graph.lint()
    module.recompile()


def plan_on_host(module: GraphModule, signature: ExportGraphSignature, states: list[State]) -> None:
    """Plan every tensor on the host; delegates keep these buffers in memory of their GPU.

    Args:
        module: The program to plan.
        signature: Its signature.
        states: The buffers that can move.
    """
    for state in states:
        state.move(signature)
    for node in list(module.graph.nodes):
        if is_copy(node, "_h2d_copy") or is_copy(node, "_d2h_copy"):
            node.replace_all_uses_with(node.args[0])
            erase(node)
    for node in module.graph.nodes:
        specs = node.meta.get("spec")
        for spec in specs if isinstance(specs, (tuple, list)) else [specs]:
            if isinstance(spec, TensorSpec):
                spec.device, spec.device_index = DeviceType.CPU, 0
    kept = {id(state.buffer.meta["spec"]) for state in states}
    for call, inputs, outputs in delegate_calls(module):
        _add_spec(call, _DEVICE_STATE, [*inputs, *outputs], kept)
    results: Any = module.graph.output_node()
    results.meta["spec"] = type(results.meta["spec"])(
        node.meta["spec"] if isinstance(node, Node) else spec
        for node, spec in zip(results.args[0], results.meta["spec"], strict=True)
    )
    module.graph.lint()
    module.recompile()


def _add_spec(call: Node, key: str, tensors: list[TensorSpec], chosen: set[int]) -> None:
    """Add a compile spec that lists the chosen tensors by index, if there are any."""
    indices = ",".join(str(index) for index, spec in enumerate(tensors) if id(spec) in chosen)
    if indices and (lowered := lowered_module(call)) is not None:
        lowered.compile_specs.append(CompileSpec(key, indices.encode()))


def delegate_calls(
    module: GraphModule,
) -> Iterator[tuple[Node, list[TensorSpec], list[TensorSpec]]]:
    """Iterate over the delegate calls with the tensors that they read and write."""
    for node in module.graph.nodes:
        if node.target is executorch_call_delegate:
            args = [arg.meta.get("spec") for arg in node.args[1:] if isinstance(arg, Node)]
            inputs = [spec for spec in args if isinstance(spec, TensorSpec)]
            yield node, inputs, [s for s in node.meta["spec"] if isinstance(s, TensorSpec)]


def find_buffers(graph: Graph, signature: ExportGraphSignature) -> dict[str, Node]:
    """Return the placeholders of a method's buffers, by the buffer's name."""
    names = signature.inputs_to_buffers
    placeholders = graph.find_nodes(op="placeholder")
    return {names[node.target]: node for node in placeholders if node.target in names}


def find_states(module: GraphModule, signature: ExportGraphSignature) -> dict[str, State]:
    """Return the mutated buffers that delegates write or only read, by name.

    ExecuTorch puts the buffers that a method returns as they are behind those it writes, in the
    method's outputs but not in its signature.
    """
    buffers = find_buffers(module.graph, signature)
    results: Any = module.graph.output_node().args[0]
    shown = {o.arg.name for o in signature.output_specs if o.kind is OutputKind.USER_OUTPUT}
    states: dict[str, State] = {}
    for spec in filter(_is_new_value, signature.output_specs):
        name = str(spec.target)
        buffer = buffers.get(name)
        if buffer is None:
            continue
        if buffer in results and buffer.name not in shown:
            states[name] = State(buffer)
        for index, result in enumerate(results):
            if (state := _written_state(buffer, result, index)) is not None:
                states[name] = state
    return states


def _is_new_value(spec: OutputSpec) -> bool:
    return spec.kind is OutputKind.BUFFER_MUTATION


def _written_state(buffer: Node, write_back: Any, output: int) -> WrittenState | None:  # noqa: ANN401
    if not (
        isinstance(write_back, Node)
        and "aten::copy_" in str(getattr(write_back.target, "_schema", ""))
        and write_back.args[0] is buffer
        and len(write_back.users) == 1
    ):
        return None
    download: Any = write_back.args[1]
    new: Any = download.args[0] if is_copy(download, "_d2h_copy") else None
    if not isinstance(new, Node) or new.target is not operator.getitem:
        return None
    writer: Any = new.args[0]
    if (
        writer.target is executorch_call_delegate
        and isinstance(writer.meta.get("spec"), (tuple, list))
        and isinstance(new.meta.get("spec"), TensorSpec)
        and isinstance(buffer.meta.get("spec"), TensorSpec)
    ):
        return WrittenState(buffer, write_back, new, writer, output)
    return None


def is_copy(node: Any, name: str) -> bool:  # noqa: ANN401
    """Check that a node is this copy of ExecuTorch's, such as ``_h2d_copy``."""
    schema = getattr(getattr(node, "target", None), "_schema", None)
    return schema is not None and schema.name == f"et_copy::{name}"


def device_of(node: Node) -> tuple[DeviceType, int]:
    """Return the device that a node's tensor is planned on."""
    spec: TensorSpec = node.meta["spec"]
    return spec.device, spec.device_index


def lowered_module(call: Node) -> LoweredBackendModule | None:
    """Return the module of a delegate call."""
    lowered = call.args[0]
    assert isinstance(lowered, Node)
    module = getattr(call.graph.owning_module, str(lowered.target), None)
    return module if isinstance(module, LoweredBackendModule) else None


def erase(node: Node) -> None:
    """Erase a node without users, and the memory that was allocated for its result."""
    out = node.kwargs.get("out")
    node.graph.erase_node(node)
    if isinstance(out, Node) and out.target is alloc and not out.users:
        out.graph.erase_node(out)


def _layout(spec: TensorSpec) -> tuple[Any, ...]:
    return spec.dtype, tuple(spec.shape), tuple(spec.dim_order), spec.shape_dynamism


def _backend_id(call: Node) -> str:
    module = lowered_module(call)
    return "" if module is None else str(module.backend_id)


def _replace_result(node: Node, index: int, spec: TensorSpec) -> None:
    results = list(node.meta["spec"])
    results[index] = spec
    node.meta["spec"] = type(node.meta["spec"])(results)
