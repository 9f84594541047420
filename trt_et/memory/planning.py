"""Memory planning for programs with engines.

ExecuTorch plans mutated buffers (KV caches, running statistics) on the host, and copies them to the
delegate's GPU and back at every call. ``TensorRTMemoryPlanningPass`` plans a buffer in the
GPU's memory if only engines of that GPU read it and one of them writes it. The engine's input and
output then have one address, and no copy remains.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import torch
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.tensor import TensorSpec
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from trt_et.errors import OptionError
from trt_et.memory.state import (
    State,
    delegate_calls,
    device_of,
    erase,
    find_buffers,
    find_states,
    is_copy,
    lowered_module,
    move_to_device,
    plan_on_host,
)

# TensorRT needs addresses that are multiples of this; the delegate copies a tensor at any other.
_ALIGNMENT: Final = 256


class TensorRTMemoryPlanningPass(MemoryPlanningPass):
    """ExecuTorch's memory planning, with state on the GPU and tensors at TensorRT's alignment.

    ::

        manager.to_executorch(
            ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
        )

    A mutated buffer moves to the GPU if only delegates on that GPU read it, the first of them is a
    TensorRT engine, and the last of them is a TensorRT engine that writes its new value. Other
    buffers stay on the host: one that the CPU reads, one with an initial value to load
    (``InitializedMutableBufferPass``), one that is read after its new value exists, and all buffers
    without ``enable_non_cpu_memory_planning``. State on the GPU begins at zero: the first engine
    that reads it clears it before its first run, unless trt-et's allocator made the memory.

    With ``share_mutable_buffers`` the methods of a program share their state. ExecuTorch's runtime
    shares planned memory between methods on the host only, so all tensors are planned there, and
    the engines copy their inputs and outputs. The engines keep a buffer on their GPU, in one memory
    for all methods, if it can move in every method that has it. The methods must run with shared
    host arenas: ``executorch.runtime`` does that, ``Module`` with ``share_memory_arenas``.

    With ``alloc_graph_output=False`` the caller gives memory for the outputs, on the host.
    ExecuTorch copies the engines' outputs, which are planned on their GPU, to that memory.

    Args:
        alignment: The alignment of every planned tensor, in bytes.
        inputs_on_device: The caller gives the inputs in memory of the GPU that reads them: True for
            all inputs, or the names of some. Outputs stay on the GPU with
            ``skip_d2h_for_method_outputs``.
        options: The options of ``executorch.exir.passes.MemoryPlanningPass``.
    """

    def __init__(
        self,
        *,
        alignment: int = _ALIGNMENT,
        inputs_on_device: bool | Collection[str] = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        if inputs_on_device:
            if options.get("share_mutable_buffers") or options.get("alloc_graph_input"):
                raise OptionError(
                    "inputs_on_device cannot be combined with share_mutable_buffers=True, "
                    "which plans all tensors on the host, or with alloc_graph_input=True"
                )
            options["alloc_graph_input"] = False
        super().__init__(alignment=alignment, **options)
        self._inputs_on_device = inputs_on_device
        self._waiting: list[tuple[Graph, ExportGraphSignature]] = []

    def run(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None = None,
    ) -> PassResult:
        """Move the state that can move, and plan the memory as ExecuTorch does.

        Methods that share state are planned in ``run_multimethod``, when all are known.
        """
        if graph_signature is not None and self.enable_non_cpu_memory_planning:
            if self.share_mutable_buffers:
                self._waiting.append((graph_module.graph, graph_signature))
                return PassResult(graph_module, True)
            if self.alloc_mutable_buffers:
                states = find_states(graph_module, graph_signature).values()
                movable = [state for state in states if state.can_move()]
                move_to_device(graph_module, graph_signature, movable)
            if self._inputs_on_device:
                _label_inputs(graph_module, graph_signature, self._inputs_on_device)
        if not self.alloc_graph_output:
            _set_outputs_of_caller(graph_module.graph, graph_signature)
        planned: PassResult = super().run(graph_module, graph_signature)
        return planned

    def run_multimethod(self) -> None:
        """Plan the methods that share state, and give each buffer one place in all of them.

        Raises:
            OptionError: A buffer that one method changes is a constant of another one's delegate.
        """
        methods = [_Method(graph, signature) for graph, signature in self._waiting]
        self._waiting.clear()
        _refuse_constants(methods)
        movable = [
            [state for name, state in method.states.items() if _can_move(name, methods)]
            for method in methods
        ]
        for method, states in zip(methods, movable, strict=True):
            plan_on_host(method.module, method.signature, states)
            super().run(method.module, method.signature)
        super().run_multimethod()
        self.state = type(self.state)()  # type: ignore[has-type]


def _label_inputs(
    module: GraphModule, signature: ExportGraphSignature, chosen: bool | Collection[str]
) -> None:
    """Let the caller give inputs on the GPU that reads them, and drop ExecuTorch's copies.

    ``skip_h2d_for_method_inputs`` cannot: it takes a mutated buffer for an input, and refuses an
    input with a second user, such as the one that writes a buffer back.
    """
    inputs = list(map(str, signature.user_inputs))
    names = set(inputs) if isinstance(chosen, bool) else set(chosen)
    if unknown := names.difference(inputs):
        raise OptionError(
            f"inputs_on_device names {min(unknown)!r}, but the inputs of the method are "
            + ", ".join(inputs)
        )
    for node in module.graph.find_nodes(op="placeholder"):
        # A user that reads only the size does not read the memory.
        readers = [user for user in node.users if user.target is not torch.ops.aten.sym_size.int]
        uploads = [user for user in readers if is_copy(user, "_h2d_copy")]
        if node.name not in names or not uploads:
            continue
        devices = {device_of(upload) for upload in uploads}
        if len(uploads) < len(readers) or len(devices) > 1:
            places = [f"cuda:{index}" for _, index in sorted(devices)]
            places += ["the CPU"] if len(uploads) < len(readers) else []
            raise OptionError(
                f"inputs_on_device, but input {node.name} is read on several devices: "
                + ", ".join(places)
            )
        spec: TensorSpec = node.meta["spec"]
        spec.device, spec.device_index = devices.pop()
        for upload in uploads:
            upload.replace_all_uses_with(node)
            erase(upload)
    module.graph.lint()
    module.recompile()


def _set_outputs_of_caller(graph: Graph, signature: ExportGraphSignature | None) -> None:
    """Leave the host's copy of an output unplanned, not the tensor on the GPU.

    ``PropagateDevicePass`` adds a copy after an output of a delegate, but still marks the tensor
    before the copy as the one that the caller gives memory for. State that moved is an output of
    the graph, but not one of the caller's.
    """
    buffers = find_buffers(graph, signature) if signature else {}
    state = {id(node.meta["spec"]) for node in buffers.values()}
    output = graph.output_node()
    specs = [value.meta.get("spec") for value in output.all_input_nodes]
    output.meta["spec"] = [spec for spec in specs if id(spec) not in state]


class _Method:
    """One method of a program whose methods share state."""

    def __init__(self, graph: Graph, signature: ExportGraphSignature) -> None:
        # ExecuTorch has given the graph to the program's module by now.
        self.module: GraphModule = graph.owning_module  # type: ignore[assignment]
        self.signature = signature
        self.buffers = find_buffers(graph, signature)
        self.states: dict[str, State] = find_states(self.module, signature)


def _can_move(name: str, methods: list[_Method]) -> bool:
    """Check that every method that has a buffer can keep it on one and the same GPU."""
    states = [method.states.get(name) for method in methods if name in method.buffers]
    if not all(state is not None and state.can_move() for state in states):
        return False
    return len(set().union(*(state.devices for state in states if state is not None))) == 1


def _refuse_constants(methods: list[_Method]) -> None:
    changed = {name for method in methods for name in method.signature.buffers_to_mutate.values()}
    for method in methods:
        for call, _, _ in delegate_calls(method.module):
            lowered = lowered_module(call)
            if lowered is None:
                continue
            program = lowered.original_module
            inside = find_buffers(program.graph, program.graph_signature)
            if frozen := sorted(name for name in inside.keys() & changed if inside[name].users):
                raise OptionError(
                    f"buffer {frozen[0]} is changed by one method, but is a constant in delegate "
                    f"{call.args[0]} of another, which would never see the change. In that "
                    "method, write the buffer too (buffer.copy_(buffer)), or leave its readers to "
                    "the CPU (excluded_ops)"
                )
