"""Memory planning for programs with engines: state stays on its GPU.

ExecuTorch plans mutated buffers (KV caches, running statistics) on the host, and copies them to the
delegate's GPU and back at every call. :class:`TensorRTMemoryPlanningPass` plans a buffer that only
engines of one GPU read, and that an engine there writes, in that GPU's memory instead; the engine's
output and its input then have one address, and nothing of it crosses the host.
"""

from __future__ import annotations

from typing import Any, Final

from executorch.exir.passes import MemoryPlanningPass
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from trt_et.device_inputs import label_inputs
from trt_et.device_state import (
    State,
    find_states,
    lowered_module,
    move_to_device,
    plan_on_host,
    tensors_of_calls,
)
from trt_et.errors import OptionError

__all__ = ["TensorRTMemoryPlanningPass"]

# TensorRT wants addresses that are multiples of this; the delegate copies a tensor at any other.
_ALIGNMENT: Final = 256


class TensorRTMemoryPlanningPass(MemoryPlanningPass):
    """ExecuTorch's memory planning, with state on the GPU and tensors at TensorRT's alignment.

    ::

        manager.to_executorch(
            ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
        )

    A mutated buffer moves to the GPU if all that reads it are delegates there, the first of which
    is a TensorRT engine, and the last one that writes its new value. Any other buffer stays where
    ExecuTorch plans it: one that the CPU reads, one with an initial value to be loaded
    (``InitializedMutableBufferPass``), one read again after its new value exists, and all without
    ``enable_non_cpu_memory_planning``. State on the GPU begins at zero: the first engine that reads
    it clears it before its first run, where the memory comes from another allocator than trt-et's.

    With ``share_mutable_buffers`` the methods of a program share their state. ExecuTorch's runtime
    shares planned memory between methods on the host only, so all tensors are planned there; the
    engines copy their inputs and outputs, and keep a buffer that can move in every method that has
    it on its GPU, in one memory for all methods. Where the methods run, their host arenas must be
    shared: ``executorch.runtime`` does so, ``Module`` with ``share_memory_arenas``.

    With ``alloc_graph_output=False`` the caller gives memory for the outputs, on the host; what the
    engines write, in front of ExecuTorch's copy, is planned on their GPU.

    Args:
        alignment: Of every planned tensor, in bytes.
        inputs_on_device: The caller gives the inputs in memory of the GPU that reads them. Outputs
            stay on the GPU with ``skip_d2h_for_method_outputs``.
        options: As of :class:`executorch.exir.passes.MemoryPlanningPass`.
    """

    def __init__(
        self,
        *,
        alignment: int = _ALIGNMENT,
        inputs_on_device: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        if inputs_on_device:
            if options.get("share_mutable_buffers") or options.get("alloc_graph_input"):
                raise OptionError(
                    "inputs_on_device=True goes neither with share_mutable_buffers=True, which "
                    "plans all tensors on the host, nor with alloc_graph_input=True"
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
        """Move what state can be moved, then plan as ExecuTorch does.

        Methods that share state are planned in :meth:`run_multimethod`, when all are known.
        """
        if graph_signature is not None and self.enable_non_cpu_memory_planning:
            if self.share_mutable_buffers:
                self._waiting.append((graph_module.graph, graph_signature))
                return PassResult(graph_module, True)
            if self.alloc_mutable_buffers:
                states = find_states(graph_module, graph_signature)
                movable = [state for state in states if state.can_move()]
                move_to_device(graph_module, graph_signature, movable)
            if self._inputs_on_device:
                label_inputs(graph_module, graph_signature)
        if not self.alloc_graph_output:
            _name_outputs(graph_module.graph, graph_signature)
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
        for method in methods:
            states = [state for name, state in method.states.items() if _can_move(name, methods)]
            method.moving = states
        for method in methods:
            plan_on_host(method.module, method.signature, method.moving)
            super().run(method.module, method.signature)
        super().run_multimethod()
        self.state = type(self.state)()  # type: ignore[has-type]


def _name_outputs(graph: Graph, signature: ExportGraphSignature | None) -> None:
    """Say what the caller gives memory for: the host's copy of an output, not the GPU's.

    ``PropagateDevicePass`` puts a copy behind an output of a delegate, and leaves the tensor in
    front of it as the one that is not to be planned. State that moved is an output, too, but not
    one of the caller's.
    """
    buffers = signature.inputs_to_buffers if signature else {}
    state = [
        node.meta["spec"]
        for node in graph.nodes
        if node.op == "placeholder" and node.target in buffers
    ]
    output = graph.output_node()
    specs = [value.meta.get("spec") for value in output.all_input_nodes]
    output.meta["spec"] = [spec for spec in specs if not any(spec is kept for kept in state)]


class _Method:
    """One method of a program whose methods share state."""

    def __init__(self, graph: Graph, signature: ExportGraphSignature) -> None:
        # ExecuTorch has given the graph to the program's module by now.
        self.module: GraphModule = graph.owning_module  # type: ignore[assignment]
        self.signature = signature
        names = signature.inputs_to_buffers
        self.buffers = {
            names[str(node.target)]
            for node in graph.nodes
            if node.op == "placeholder" and node.target in names
        }
        self.states = {
            names[str(state.buffer.target)]: state for state in find_states(self.module, signature)
        }
        self.moving: list[State] = []


def _can_move(name: str, methods: list[_Method]) -> bool:
    """Whether every method that has a buffer can keep it on the GPU, and on one and the same."""
    having = [method for method in methods if name in method.buffers]
    states = [method.states.get(name) for method in having]
    return (
        all(state is not None and state.can_move() for state in states)
        and len({state.device for state in states if state is not None}) == 1
    )


def _refuse_constants(methods: list[_Method]) -> None:
    changed = {name for method in methods for name in method.signature.buffers_to_mutate.values()}
    for method in methods:
        for call, _ in tensors_of_calls(method.module):
            lowered = lowered_module(call)
            if lowered is None:
                continue
            names = lowered.original_module.graph_signature.inputs_to_buffers
            inside = {
                names.get(str(node.target))
                for node in lowered.original_module.graph.nodes
                if node.op == "placeholder" and node.users
            }
            if frozen := sorted(inside & changed):
                raise OptionError(
                    f"buffer {frozen[0]} is changed by one method, and a constant in delegate "
                    f"{call.args[0]} of another, which would never see the change. In that "
                    "method, write the buffer too (buffer.copy_(buffer)), or leave what reads it "
                    "to the CPU (excluded_ops)"
                )
