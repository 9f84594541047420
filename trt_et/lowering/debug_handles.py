"""Ties events of an engine to the calls of the program, for ExecuTorch's ``Inspector``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from executorch.exir.backend.utils import DelegateMappingBuilder
from torch.export import ExportedProgram

__all__ = ["debug_handles"]

# With profile_layers, a reference engine is one layer. Other events of the whole engine have no
# handles: Inspector.calculate_numeric_gap would look for the engine's outputs in them, and not in
# DELEGATE_CALL, to which ExecuTorch gives all handles.
_WHOLE: Final = "reference engine"


def debug_handles(program: ExportedProgram, names: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """Return the debug handles of each event's calls, by the event's name.

    Args:
        program: The partition, in the Edge dialect.
        names: The names that calls have in the engine, with the program's names for them. A layer's
            event has the name of its call (``LayerEvents::report``).
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
    for new, old in names.items():
        if old in handles:
            builder.insert_delegate_mapping_entry(handles=handles[old], identifier=new)
    mapping: dict[str, tuple[int, ...]] = builder.get_delegate_mapping()
    return mapping
