"""Memory planning for programs with engines: state stays on its GPU.

ExecuTorch plans mutated buffers (KV caches, running statistics) on the host, and copies them to the
delegate's GPU and back at every call. :class:`TensorRTMemoryPlanningPass` plans a buffer that only
engines of one GPU read, and that an engine there writes, in that GPU's memory instead; the engine's
output and its input then have one address, and nothing of it crosses the host.
"""

from __future__ import annotations

import operator
from typing import Any, Final

from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.memory import alloc
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.schema import DeviceType
from executorch.exir.tensor import TensorSpec
from torch.export.graph_signature import ExportGraphSignature, OutputKind
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from trt_et.blob.model import BACKEND_ID

__all__ = ["TensorRTMemoryPlanningPass"]

# TensorRT wants addresses that are multiples of this; the delegate copies a tensor at any other.
_ALIGNMENT: Final = 256
# The compile spec that names a delegate's inputs by their index among its tensors, as "0,3".
_STATE_INPUTS: Final = "state_inputs"


class TensorRTMemoryPlanningPass(MemoryPlanningPass):
    """ExecuTorch's memory planning, with state on the GPU and tensors at TensorRT's alignment.

    ::

        manager.to_executorch(
            ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
        )

    A mutated buffer moves to the GPU if all that reads it are delegates there, the first of which
    is a TensorRT engine, and the last one that writes its new value. Any other buffer stays where
    ExecuTorch plans it: one that the CPU reads, one with an initial value to be loaded
    (``InitializedMutableBufferPass``), one read again after its new value exists, and all with
    ``share_mutable_buffers`` or without ``enable_non_cpu_memory_planning``. State on the GPU begins
    at zero: the first engine that reads it clears it before its first run, where the memory comes
    from another allocator than trt-et's.

    Args:
        alignment: Of every planned tensor, in bytes.
        options: As of :class:`executorch.exir.passes.MemoryPlanningPass`.
    """

    def __init__(self, *, alignment: int = _ALIGNMENT, **options: Any) -> None:  # noqa: ANN401
        super().__init__(alignment=alignment, **options)

    def run(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None = None,
    ) -> PassResult:
        """Move what state can be moved, then plan as ExecuTorch does."""
        if (
            graph_signature is not None
            and self.enable_non_cpu_memory_planning
            and self.alloc_mutable_buffers
            and not self.share_mutable_buffers
        ):
            _keep_state_on_device(graph_module, graph_signature)
        planned: PassResult = super().run(graph_module, graph_signature)
        return planned


class _State:
    """A mutated buffer, who reads it, and where its new value comes from.

    In the graph that is planned: ``buffer`` -> ``_h2d_copy`` -> delegates; the writing delegate ->
    ``new`` (a getitem) -> ``_d2h_copy`` -> ``write_back`` (``copy_``) into ``buffer``.
    """

    def __init__(self, buffer: Node, write_back: Node, new: Node, writer: Node) -> None:
        self.buffer = buffer
        self.write_back = write_back
        self.new = new
        self.writer = writer
        self.uploads = [user for user in buffer.users if _is_copy(user, "_h2d_copy")]

    def can_move(self, order: dict[Node, int]) -> bool:
        """Whether reads and writes in place give what the copies gave."""
        spec, new = self.buffer.meta["spec"], self.new.meta["spec"]
        device = (new.device, new.device_index)
        readers = [user for upload in self.uploads for user in upload.users]
        return (
            spec.device is DeviceType.CPU
            and new.device is not DeviceType.CPU
            and not self.buffer.meta.get("et_init_buffer")
            and _layout(spec) == _layout(new)
            and _backend_id(self.writer) == BACKEND_ID
            and bool(self.uploads)
            and set(self.buffer.users) == {self.write_back, *self.uploads}
            and all(_device(upload) == device for upload in self.uploads)
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
        _erase(self.write_back)
        if isinstance(download, Node) and not download.users:
            _erase(download)
        for upload in self.uploads:
            upload.replace_all_uses_with(self.buffer)
            _erase(upload)


def _keep_state_on_device(module: GraphModule, signature: ExportGraphSignature) -> None:
    moved = []
    for state, output in _states(module, signature):
        order = {node: index for index, node in enumerate(module.graph.nodes)}
        if state.can_move(order):
            state.move()
            moved.append(state.buffer)
            signature.output_specs[output].arg.name = state.new.name
            _replace_result(module.graph.output_node(), output, state.buffer.meta["spec"])
    _name_state_inputs(module, moved)
    module.graph.lint()
    module.recompile()


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
        if found and (lowered := _lowered_module(node)) is not None:
            text = ",".join(map(str, found))
            lowered.compile_specs.append(CompileSpec(_STATE_INPUTS, text.encode()))


def _states(module: GraphModule, signature: ExportGraphSignature) -> list[tuple[_State, int]]:
    """The buffers that an engine's output is written back to, each with its output's index."""
    buffers: dict[str, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder" and node.target in signature.inputs_to_buffers:
            buffers[signature.inputs_to_buffers[node.target]] = node
    results: Any = module.graph.output_node().args[0]
    found = []
    for index, spec in enumerate(signature.output_specs):
        buffer = buffers.get(str(spec.target)) if spec.kind is OutputKind.BUFFER_MUTATION else None
        if buffer is not None and (state := _written_by_engine(buffer, results[index])):
            found.append((state, index))
    return found


def _written_by_engine(buffer: Node, write_back: Any) -> _State | None:  # noqa: ANN401
    if not (
        isinstance(write_back, Node)
        and "aten::copy_" in str(getattr(write_back.target, "_schema", ""))
        and write_back.args[0] is buffer
        and len(write_back.users) == 1
    ):
        return None
    download: Any = write_back.args[1]
    new: Any = download.args[0] if _is_copy(download, "_d2h_copy") else None
    if not isinstance(new, Node) or new.target is not operator.getitem:
        return None
    writer: Any = new.args[0]
    if (
        writer.target is executorch_call_delegate
        and isinstance(writer.meta.get("spec"), (tuple, list))
        and isinstance(new.meta.get("spec"), TensorSpec)
        and isinstance(buffer.meta.get("spec"), TensorSpec)
    ):
        return _State(buffer, write_back, new, writer)
    return None


def _is_copy(node: Any, name: str) -> bool:  # noqa: ANN401
    schema = getattr(getattr(node, "target", None), "_schema", None)
    return schema is not None and schema.name == f"et_copy::{name}"


def _device(node: Node) -> tuple[DeviceType, int]:
    spec: TensorSpec = node.meta["spec"]
    return spec.device, spec.device_index


def _layout(spec: TensorSpec) -> tuple[Any, ...]:
    return spec.dtype, tuple(spec.shape), tuple(spec.dim_order), spec.shape_dynamism


def _lowered_module(call: Node) -> LoweredBackendModule | None:
    lowered = call.args[0]
    assert isinstance(lowered, Node)
    module = getattr(call.graph.owning_module, str(lowered.target), None)
    return module if isinstance(module, LoweredBackendModule) else None


def _backend_id(call: Node) -> str:
    module = _lowered_module(call)
    return "" if module is None else str(module.backend_id)


def _replace_result(node: Node, index: int, spec: TensorSpec) -> None:
    results = list(node.meta["spec"])
    results[index] = spec
    node.meta["spec"] = type(node.meta["spec"])(results)


def _erase(node: Node) -> None:
    """Erase a node without users, and the memory that was allocated for its result."""
    out = node.kwargs.get("out")
    node.graph.erase_node(node)
    if isinstance(out, Node) and out.target is alloc and not out.users:
        out.graph.erase_node(out)
