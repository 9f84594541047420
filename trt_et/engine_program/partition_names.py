"""Writes the compile spec with the names that an engine does not have."""

from __future__ import annotations

from collections import Counter

from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from trt_et.blob.partition_spec import PARTITION_KEY, PartitionNames
from trt_et.engine_program.edge_to_aten import qualified_name


def add_names(name: str, program: ExportedProgram, specs: list[CompileSpec]) -> None:
    """Append the spec of a partition to its compile specs, in place of an older one."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    names = PartitionNames(
        name,
        [str(name) for name in program.graph_signature.user_inputs],
        [str(name) for name in program.graph_signature.user_outputs],
        dict(Counter(map(qualified_name, calls))),
    )
    specs[:] = [spec for spec in specs if spec.key != PARTITION_KEY]
    specs.append(CompileSpec(PARTITION_KEY, names.encode()))
