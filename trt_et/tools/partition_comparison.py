"""Each engine of a file beside what torch computes from the same inputs.

The model is lowered again, but no engine is built: each partition takes the file's. What enters and
leaves an engine is made an output of this second program. One run then gives the values that each
engine had and made, and torch runs the partition's operators on those it had: an error that an
engine before it made does not count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, SymIntArgument, TensorArgument
from torch.fx import Node

from trt_et.errors import BuilderError, RunError
from trt_et.inspection import DelegateInfo, MethodInfo
from trt_et.memory_planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner
from trt_et.tools.arrays import compare_arrays
from trt_et.tools.inputs import to_numpy
from trt_et.tools.requests import Request

__all__ = ["compare_partitions"]

_ADVICE = "was it exported from this model, with the same --exclude and --min-block-size?"


def compare_partitions(
    request: Request,
    load: Callable[[Request], Any],
    method: MethodInfo,
    exported: ExportedProgram,
    inputs: Sequence[Any],
) -> list[dict[str, Any]]:
    """Compare each partition outside of branches, in the order in which they run.

    Args:
        request: With the ``excluded_ops`` and ``min_block_size`` of the file's export.
        load: From a request to a callable program.
        method: The file's method.
        exported: The model.
        inputs: Of the model, and so of the program.

    Returns:
        For each: ``partition``, ``device``, ``modules``, ``operators``, and ``outputs`` with their
        ``name`` and what :func:`trt_et.tools.arrays.compare_arrays` returns. New values of state
        are not among them.

    Raises:
        RunError: The file was not made from this model with these options, or cannot be run.
    """
    engines = [method.delegates[call.index] for call in method.calls if call.kind == "delegate"]
    partitioner = TensorRTPartitioner(
        builder=_EnginesOfTheFile(engines),
        excluded_ops=request.excluded_ops,
        min_block_size=request.min_block_size,
        progress=False,
        cache=False,
    )
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    program = manager.exported_program()
    calls = program.graph.find_nodes(op="call_function", target=executorch_call_delegate)
    if len(calls) != len(engines):
        raise RunError(
            f"the program calls {len(engines)} engines, the model makes {len(calls)} partitions "
            f"outside of branches; {_ADVICE}"
        )
    indices = _make_outputs(program, [node for call in calls for node in _around(program, call)])
    known = _inputs(program, inputs)
    # Planning the memory changes the graph.
    parts = [_Part.of(program, *pair, indices) for pair in zip(calls, engines, strict=True)]
    values = _run(request, load, manager, inputs)
    known |= {name: values[index] for name, index in indices.items()}
    named = {part.name: part for part in partitioner.report.partitions}  # type: ignore[union-attr]
    return [
        {
            "partition": part.name,
            "device": part.device,
            "modules": list(named[part.name].modules),
            "operators": list(named[part.name].operators),
            "outputs": part.compare(known),
        }
        for part in parts
    ]


@dataclass(frozen=True)
class _Part:
    """A partition of the lowered program, with the file's engine.

    Attributes:
        name: The partitioner's.
        device: That of the engine.
        module: What torch runs.
        args: What enters it; a string is a value's name.
        results: The names of the values that leave it, and which of its results each is.
    """

    name: str
    device: str
    module: ExportedProgram
    args: tuple[Any, ...]
    results: dict[str, int]

    @classmethod
    def of(
        cls,
        program: ExportedProgram,
        call: Any,  # noqa: ANN401
        engine: DelegateInfo,
        shown: Container[str],
    ) -> _Part:
        """What a call runs; from now on with this engine, also where several would fit."""
        module: LoweredBackendModule = getattr(program.graph_module, call.args[0].target)
        module._processed_bytes = bytes(engine.blob)
        nodes = module.original_module.graph.nodes
        return cls(
            next(n.meta["delegation_tag"] for n in nodes if n.op == "call_function"),
            f"cuda:{engine.engine.device_id}",  # type: ignore[union-attr]
            module.original_module,
            tuple(arg.name if isinstance(arg, Node) else arg for arg in call.args[1:]),
            {user.name: user.args[1] for user in call.users if user.name in shown},
        )

    def compare(self, known: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Its outputs beside torch's."""
        args = [known[arg] if isinstance(arg, str) else arg for arg in self.args]
        try:
            with torch.no_grad():
                expected = self.module.module()(*args)
        except Exception as error:  # torch raises many types.
            raise RunError(
                f"torch cannot run the operators of partition {self.name}: "
                f"{type(error).__name__}: {error}"
            ) from error
        made_by: Any = self.module.graph.output_node().args[0]
        return [
            {
                "name": made_by[index].name,
                **compare_arrays(to_numpy(known[name]), to_numpy(expected[index])),
            }
            for name, index in self.results.items()
        ]


class _EnginesOfTheFile:
    """A builder that builds nothing."""

    def __init__(self, engines: Sequence[DelegateInfo]) -> None:
        self._engines = engines
        others = {one.backend_id for one in engines if one.engine is None}
        if others or not engines:
            raise RunError(
                "--per-partition compares engines of TensorRTBackend; the program's delegates are "
                f"of {', '.join(others) or 'no backend'}"
            )
        self.name = str(engines[0].engine.builder)  # type: ignore[union-attr]

    def build(self, request: Any) -> bytes:  # noqa: ANN401
        """Some engine with these inputs and outputs."""
        for engine in self._engines:
            if _boundary(engine.engine) == _boundary(request.lowered):
                return bytes(engine.blob)
        raise BuilderError(f"the file has no engine with its inputs and outputs; {_ADVICE}")


def _boundary(described: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    return [(b.name, b.is_input, b.dtype, tuple(b.shape)) for b in described.bindings]


def _state(program: ExportedProgram) -> set[str]:
    """The names of nodes that are new values of buffers or inputs."""
    specs = program.graph_signature.output_specs
    return {spec.arg.name for spec in specs if spec.kind is not OutputKind.USER_OUTPUT}


def _around(program: ExportedProgram, call: Node) -> list[Node]:
    """The nodes whose values enter and leave an engine, without placeholders and state."""
    state = _state(program)
    entering = [node for node in call.all_input_nodes if node.op == "call_function"]
    return [*entering, *(node for node in call.users if node.name not in state)]


def _make_outputs(program: ExportedProgram, nodes: Sequence[Node]) -> dict[str, int]:
    """Append nodes to a program's outputs; which output each is at run time."""
    output = program.graph.output_node()
    specs = program.graph_signature.output_specs
    results = list(cast("tuple[Any, ...]", output.args[0]))
    returned = [
        node
        for node, spec in zip(results, specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    for node in dict.fromkeys(nodes):
        if node not in returned:
            kind = TensorArgument if isinstance(node.meta["val"], torch.Tensor) else SymIntArgument
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, kind(name=node.name), None))
            results.append(node)
            returned.append(node)
    output.args = (tuple(results),)
    return {node.name: returned.index(node) for node in nodes}


def _run(
    request: Request,
    load: Callable[[Request], Any],
    manager: EdgeProgramManager,
    inputs: Any,  # noqa: ANN401
) -> list[Any]:
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    with tempfile.TemporaryDirectory(prefix="trt-et-") as folder:
        file = Path(folder, "visible.pte")
        with file.open("wb") as opened:
            manager.to_executorch(config).write_to_file(opened)
        program = load(replace(request, file=str(file), method=""))
        copies = [i.clone() if isinstance(i, torch.Tensor) else i for i in inputs]
        values = program(copies)
        return [v.clone() if isinstance(v, torch.Tensor) else v for v in values]


def _inputs(program: ExportedProgram, inputs: Sequence[Any]) -> dict[str, Any]:
    """The values of placeholders. State begins at zero, as in the runtime."""
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names |= signature.inputs_to_lifted_tensor_constants
    changed = set(signature.buffers_to_mutate.values())
    given = iter(inputs)
    values = {}
    for node in program.graph.find_nodes(op="placeholder"):
        target = names.get(node.name)
        if target is None:
            values[node.name] = next(given)
        else:
            value = program.state_dict.get(target, program.constants.get(target))
            values[node.name] = torch.zeros_like(value) if target in changed else value
    return values
