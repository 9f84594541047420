"""Mutated buffers in the graph that ExecuTorch plans: which can stay on a GPU, and moving them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Final

from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.memory import alloc
from executorch.exir.schema import DeviceType
from executorch.exir.tensor import TensorSpec
from torch.export.graph_signature import ExportGraphSignature, OutputKind
from torch.fx import GraphModule, Node

from trt_et.blob.model import BACKEND_ID

__all__ = [
    "State",
    "device_of",
    "erase",
    "find_states",
    "is_copy",
    "lowered_module",
    "move_to_device",
    "plan_on_host",
    "tensors_of_calls",
]

# The compile spec that names a delegate's inputs by their index among its tensors, as "0,3".
_STATE_INPUTS: Final = "state_inputs"
# The compile spec that names a delegate's tensors, inputs then outputs, whose memory is on its GPU
# although they are planned on the host.
_DEVICE_STATE: Final = "device_state"


class State:
    """A mutated buffer, who reads it, and where its new value comes from.

    In the graph that is planned: ``buffer`` -> ``_h2d_copy`` -> delegates; the writing delegate ->
    ``new`` (a getitem) -> ``_d2h_copy`` -> ``write_back`` (``copy_``) into ``buffer``.
    """

    def __init__(
        self, buffer: Node, write_back: Node, new: Node, writer: Node, output: int
    ) -> None:
        self.buffer = buffer
        self.write_back = write_back
        self.new = new
        self.writer = writer
        self.output = output
        self.uploads = [user for user in buffer.users if is_copy(user, "_h2d_copy")]

    @property
    def device(self) -> tuple[DeviceType, int]:
        """Where its new value is made."""
        spec: TensorSpec = self.new.meta["spec"]
        return spec.device, spec.device_index

    def can_move(self) -> bool:
        """Whether reads and writes in place give what the copies gave."""
        order = {node: index for index, node in enumerate(self.buffer.graph.nodes)}
        spec, new = self.buffer.meta["spec"], self.new.meta["spec"]
        readers = [user for upload in self.uploads for user in upload.users]
        return (
            spec.device is DeviceType.CPU
            and new.device is not DeviceType.CPU
            and not self.buffer.meta.get("et_init_buffer")
            and _layout(spec) == _layout(new)
            and _backend_id(self.writer) == BACKEND_ID
            and bool(self.uploads)
            and set(self.buffer.users) == {self.write_back, *self.uploads}
            and all(device_of(upload) == self.device for upload in self.uploads)
            and all(reader.target is executorch_call_delegate for reader in readers)
            and _backend_id(min(readers, key=order.__getitem__)) == BACKEND_ID
            and max(order[reader] for reader in readers) <= order[self.writer]
        )

    def move(self) -> None:
        """Give the new value the buffer's memory, on the GPU, and drop the copies."""
        spec: TensorSpec = self.buffer.meta["spec"]
        old: TensorSpec = self.new.meta["spec"]
        spec.device, spec.device_index = old.device, old.device_index
        self.new.meta["spec"] = spec
        _replace_result(self.writer, int(self.new.args[1]), spec)  # type: ignore[arg-type]
        download = self.write_back.args[1]
        self.write_back.replace_all_uses_with(self.new)
        erase(self.write_back)
        if isinstance(download, Node) and not download.users:
            erase(download)
        for upload in self.uploads:
            upload.replace_all_uses_with(self.buffer)
            erase(upload)


def move_to_device(
    module: GraphModule, signature: ExportGraphSignature, states: Iterable[State]
) -> None:
    """Plan buffers on the GPU that makes their new values.

    Args:
        module: The program that is planned.
        signature: Its signature.
        states: Those of its buffers that can move.
    """
    states = list(states)
    _move(module, signature, states)
    _name_state_inputs(module, [state.buffer for state in states])
    module.graph.lint()
    module.recompile()


def _move(module: GraphModule, signature: ExportGraphSignature, states: list[State]) -> None:
    for state in states:
        state.move()
        signature.output_specs[state.output].arg.name = state.new.name
        _replace_result(module.graph.output_node(), state.output, state.buffer.meta["spec"])


def plan_on_host(module: GraphModule, signature: ExportGraphSignature, states: list[State]) -> None:
    """Plan every tensor on the host; delegates keep the memory of these buffers on their GPU.

    Args:
        module: The program that is planned.
        signature: Its signature.
        states: Those of its buffers that can move; they have not.
    """
    _move(module, signature, states)
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
    for call, tensors in tensors_of_calls(module):
        found = [str(index) for index, spec in enumerate(tensors) if id(spec) in kept]
        if found and (lowered := lowered_module(call)) is not None:
            lowered.compile_specs.append(CompileSpec(_DEVICE_STATE, ",".join(found).encode()))
    results: Any = module.graph.output_node()
    results.meta["spec"] = type(results.meta["spec"])(
        node.meta["spec"] if isinstance(node, Node) else spec
        for node, spec in zip(results.args[0], results.meta["spec"], strict=True)
    )
    module.graph.lint()
    module.recompile()


def tensors_of_calls(module: GraphModule) -> Iterable[tuple[Node, list[TensorSpec]]]:
    """Each delegate call with its tensors, inputs then outputs."""
    for node in module.graph.nodes:
        if node.target is executorch_call_delegate:
            given = [argument.meta.get("spec") for argument in node.args[1:] if _is_node(argument)]
            tensors = [*given, *node.meta["spec"]]
            yield node, [spec for spec in tensors if isinstance(spec, TensorSpec)]


def _is_node(argument: object) -> bool:
    return isinstance(argument, Node)


def _name_state_inputs(module: GraphModule, buffers: list[Node]) -> None:
    """Tell each delegate, in a compile spec, which of its inputs is state that it reads first."""
    remaining = set(buffers)
    for node in module.graph.nodes:
        if node.target is not executorch_call_delegate:
            continue
        tensors = [
            argument
            for argument in node.args[1:]
            if isinstance(argument, Node) and isinstance(argument.meta.get("spec"), TensorSpec)
        ]
        found = [index for index, argument in enumerate(tensors) if argument in remaining]
        remaining.difference_update(tensors)
        if found and (lowered := lowered_module(node)) is not None:
            text = ",".join(map(str, found))
            lowered.compile_specs.append(CompileSpec(_STATE_INPUTS, text.encode()))


def find_states(module: GraphModule, signature: ExportGraphSignature) -> list[State]:
    """The buffers that a delegate's output is written back to."""
    buffers: dict[str, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder" and node.target in signature.inputs_to_buffers:
            buffers[signature.inputs_to_buffers[node.target]] = node
    results: Any = module.graph.output_node().args[0]
    found = []
    for index, spec in enumerate(signature.output_specs):
        buffer = buffers.get(str(spec.target)) if spec.kind is OutputKind.BUFFER_MUTATION else None
        if buffer is not None and (state := _written_by_engine(buffer, results[index], index)):
            found.append(state)
    return found


def _written_by_engine(buffer: Node, write_back: Any, output: int) -> State | None:  # noqa: ANN401
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
        return State(buffer, write_back, new, writer, output)
    return None


def is_copy(node: Any, name: str) -> bool:  # noqa: ANN401
    """Whether a node is a copy of ExecuTorch's, such as ``_h2d_copy``."""
    schema = getattr(getattr(node, "target", None), "_schema", None)
    return schema is not None and schema.name == f"et_copy::{name}"


def device_of(node: Node) -> tuple[DeviceType, int]:
    """Where a node's tensor is planned."""
    spec: TensorSpec = node.meta["spec"]
    return spec.device, spec.device_index


def _layout(spec: TensorSpec) -> tuple[Any, ...]:
    return spec.dtype, tuple(spec.shape), tuple(spec.dim_order), spec.shape_dynamism


def lowered_module(call: Node) -> LoweredBackendModule | None:
    """The module of a delegate call."""
    lowered = call.args[0]
    assert isinstance(lowered, Node)
    module = getattr(call.graph.owning_module, str(lowered.target), None)
    return module if isinstance(module, LoweredBackendModule) else None


def _backend_id(call: Node) -> str:
    module = lowered_module(call)
    return "" if module is None else str(module.backend_id)


def _replace_result(node: Node, index: int, spec: TensorSpec) -> None:
    results = list(node.meta["spec"])
    results[index] = spec
    node.meta["spec"] = type(node.meta["spec"])(results)


def erase(node: Node) -> None:
    """Erase a node without users, and the memory that was allocated for its result."""
    out = node.kwargs.get("out")
    node.graph.erase_node(node)
    if isinstance(out, Node) and out.target is alloc and not out.users:
        out.graph.erase_node(out)
