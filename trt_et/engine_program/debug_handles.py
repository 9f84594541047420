"""Ties events of an engine to the calls of the program, for ExecuTorch's ``Inspector``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from executorch.exir.backend.utils import DelegateMappingBuilder
from torch.export import ExportedProgram

# With profile_layers, a reference engine is one layer. Other events of the whole engine have no
# handles: Inspector.calculate_numeric_gap would look for the engine's outputs in them, and not in
# DELEGATE_CALL, to which ExecuTorch gives all handles.
_WHOLE: Final = "reference engine"


def debug_handles(
    program: ExportedProgram, names: Mapping[str, str], logged: Collection[str] = ()
) -> dict[str, tuple[int, ...]]:
    """Return the debug handles of each event's calls of a partition, by the event's name.

    ``names`` has the names that calls have in the engine, with the program's names for them. A
    layer's event has the name of its call (``LayerEvents::report``). ``logged`` has the calls in
    the engine whose results the runtime logs.
    """
    handles = {
        node.name: node.meta["debug_handle"]
        for node in program.graph.nodes
        if node.op == "call_function" and node.meta.get("debug_handle") is not None
    }
    if not handles:
        return {}
    builder = DelegateMappingBuilder()
    builder.insert_delegate_mapping_entry(handles=list(handles.values()), identifier=_WHOLE)
    # An event gets the handles of the last name that its name contains, such as add_1 in add_12.
    for new in sorted(names, key=len):
        if names[new] in handles:
            builder.insert_delegate_mapping_entry(handles=handles[names[new]], identifier=new)
    mapping: dict[str, tuple[int, ...]] = builder.get_delegate_mapping()
    # Inspector looks in each result for as many handles and tensors as the delegate has outputs;
    # the runtime logs it as often (DebugOutputs::log).
    outputs = len(program.graph_signature.output_specs)
    return {name: each * (outputs if name in logged else 1) for name, each in mapping.items()}
