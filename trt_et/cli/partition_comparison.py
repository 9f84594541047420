"""Compares each engine of a file with torch, on the values that the engine had.

The model is lowered again, but each partition takes the file's engine. The values that enter and
leave an engine become outputs of this second program. It runs once; torch then runs each
partition's operators on the values that its engine had, so that errors of earlier engines do not
count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, SymIntArgument, TensorArgument
from torch.fx import Node

from trt_et.cli.arrays import compare_arrays, to_numpy
from trt_et.cli.program import LoadedMethod, Request
from trt_et.engine_program.program import EngineProgram
from trt_et.engines import BuildOptions, BuildRequest, EngineBuilder, make_builder
from trt_et.errors import BuilderError, RunError
from trt_et.graph.fragment import SupportCheck
from trt_et.inspection import DelegateInfo, MethodInfo
from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner

_ADVICE = "was it exported from this model, with the same --exclude and --min-block-size?"


def compare_partitions(
    request: Request, method: MethodInfo, exported: ExportedProgram, inputs: Sequence[Any]
) -> list[dict[str, Any]]:
    """Compare each partition outside of branches, in the order in which they run.

    Args:
        request: The request, with the ``excluded_ops`` and ``min_block_size`` of the file's export.
        method: The file's method.
        exported: The model.
        inputs: The inputs of the model and of the program.

    Returns:
        For each: ``partition``, ``device``, ``modules``, ``operators``, and ``outputs`` with their
        ``name`` and the facts of ``trt_et.cli.arrays.compare_arrays``, without new values of
        state.

    Raises:
        RunError: The file was not made from this model with these options, or cannot be run.
    """
    engines = [method.delegates[call.index] for call in method.calls if call.kind == "delegate"]
    partitioner = TensorRTPartitioner(
        builder=_EnginesOfTheFile(engines),
        excluded_ops=request.excluded_ops,
        min_block_size=request.min_block_size,
        debug_outputs=any(
            binding.value_of for one in engines if one.engine for binding in one.engine.outputs
        ),
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
    # Planning the memory changes the graph: read it before the second program is made and run.
    indices = _make_outputs(program, calls)
    known = _inputs(program, inputs)
    parts = [
        (
            getattr(program.graph_module, call.args[0].target),
            [arg.name if isinstance(arg, Node) else arg for arg in call.args[1:]],
            {user.name: user.args[1] for user in call.users if user.name in indices},
        )
        for call in calls
    ]
    for (module, _, _), engine in zip(parts, engines, strict=True):
        module._processed_bytes = bytes(engine.blob)  # Several engines may have the same inputs.
    values = _run(request, manager, inputs)
    known |= {name: values[index] for name, index in indices.items()}
    reports = {part.name: part for part in partitioner.report.partitions}  # type: ignore[union-attr]
    compared = []
    for (module, names, results), engine in zip(parts, engines, strict=True):
        part = module.original_module
        tags = (n.meta["delegation_tag"] for n in part.graph.nodes if n.op == "call_function")
        report = reports[next(tags)]
        args = [known[name] if isinstance(name, str) else name for name in names]
        expected = _expected(report.name, part, args)
        made_by = part.graph.output_node().args[0]
        compared.append(
            {
                "partition": report.name,
                "device": f"cuda:{engine.engine.device_id}",  # type: ignore[union-attr]
                "modules": list(report.modules),
                "operators": list(report.operators),
                "outputs": [
                    {
                        "name": made_by[index].name,
                        **compare_arrays(to_numpy(known[name]), to_numpy(expected[index])),
                    }
                    for name, index in results.items()
                ],
            }
        )
    return compared


class _EnginesOfTheFile(EngineBuilder):
    """A builder that returns engines of the file."""

    def __init__(self, engines: Sequence[DelegateInfo]) -> None:
        self._engines = engines
        others = {one.backend_id for one in engines if one.engine is None}
        if others or not engines:
            raise RunError(
                "--per-partition compares engines of TensorRTBackend; the program's delegates are "
                f"of {', '.join(others) or 'no backend'}"
            )
        self.name = str(engines[0].engine.builder)  # type: ignore[union-attr]
        # Networks have other operators than engines, and their weights outside of them.
        has_networks = any(one.engine.network is not None for one in engines)  # type: ignore[union-attr]
        self._networks = make_builder(self.name) if has_networks else None

    def make_support_check(self, options: BuildOptions) -> SupportCheck | None:
        return self._networks.make_support_check(options) if self._networks else None

    def named_data(self, program: EngineProgram, blob: bytes) -> Mapping[str, torch.Tensor]:
        return self._networks.named_data(program, blob) if self._networks else {}

    def build(self, request: BuildRequest) -> bytes:
        """Return an engine with these inputs and outputs."""
        for engine in self._engines:
            if _boundary(engine.engine) == _boundary(request.program):
                return bytes(engine.blob)
        raise BuilderError(f"the file has no engine with its inputs and outputs; {_ADVICE}")


def _boundary(described: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    return [(b.name, b.is_input, b.dtype, tuple(b.shape)) for b in described.bindings]


def _expected(name: str, module: ExportedProgram, args: list[Any]) -> Any:  # noqa: ANN401
    try:
        with torch.no_grad():
            return module.module()(*args)
    except Exception as error:  # torch raises many types.
        raise RunError(
            f"torch cannot run the operators of partition {name}: {type(error).__name__}: {error}"
        ) from error


def _make_outputs(program: ExportedProgram, calls: Sequence[Node]) -> dict[str, int]:
    """Append the values at engines, without new state, to the outputs; return their indices."""
    output = program.graph.output_node()
    specs = program.graph_signature.output_specs
    kinds = [spec.kind for spec in specs]
    state = {spec.arg.name for spec in specs if spec.kind is not OutputKind.USER_OUTPUT}
    results = list(cast("tuple[Any, ...]", output.args[0]))
    returned = [n for n, k in zip(results, kinds, strict=True) if k is OutputKind.USER_OUTPUT]
    nodes = [
        node
        for call in calls
        for node in (
            *(node for node in call.all_input_nodes if node.op == "call_function"),
            *(node for node in call.users if node.name not in state),
        )
    ]
    for node in dict.fromkeys(nodes):
        if node not in returned:
            kind = TensorArgument if isinstance(node.meta["val"], torch.Tensor) else SymIntArgument
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, kind(name=node.name), None))
            results.append(node)
            returned.append(node)
    output.args = (tuple(results),)
    return {node.name: returned.index(node) for node in nodes}


def _run(request: Request, manager: EdgeProgramManager, inputs: Sequence[Any]) -> list[Any]:
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    with tempfile.TemporaryDirectory(prefix="trt-et-") as folder:
        file = Path(folder, "visible.pte")
        with file.open("wb") as opened:
            manager.to_executorch(config).write_to_file(opened)
        program = LoadedMethod(replace(request, file=str(file), method="", data=""))
        copies = [i.clone() if isinstance(i, torch.Tensor) else i for i in inputs]
        values = program(copies)
        return [v.clone() if isinstance(v, torch.Tensor) else v for v in values]


def _inputs(program: ExportedProgram, inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the values of placeholders. State begins at zero, as in the runtime."""
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
