"""A program as bytes and back, with the same nodes by the same names."""

from __future__ import annotations

import copy
import io
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node, map_arg

from trt_et.errors import BuilderError

__all__ = ["NodeName", "load_program", "node_names", "save_program"]


@dataclass(frozen=True)
class NodeName:
    """A node's name; of the ``getitem`` of a node with several outputs, also which output it is."""

    name: str
    source: str = ""
    index: int = -1


def save_program(program: ExportedProgram) -> bytes:
    """A program as bytes (``torch.export.save``), without its weights."""
    shell = copy.copy(program)
    shell._state_dict = _without_values(program.state_dict)
    shell._constants = _without_values(program.constants)
    used = _symbols(program.graph)
    shell._range_constraints = {
        symbol: limits for symbol, limits in program.range_constraints.items() if symbol in used
    }
    buffer = io.BytesIO()
    torch.export.save(shell, buffer)
    return buffer.getvalue()


def _without_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _meta(value) for name, value in values.items()}


def _meta(value: torch.Tensor) -> torch.Tensor:
    meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(meta, requires_grad=value.requires_grad)
    return meta


def _symbols(graph: Graph) -> set[Any]:
    """The symbols in the sizes of a graph's values."""
    found: set[Any] = set()
    for node in graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, tuple | list) else (values,):
            sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
            for size in sizes:
                if isinstance(size, torch.SymInt):
                    found |= size.node.expr.free_symbols
    return found


def node_names(graph: Graph) -> tuple[NodeName, ...]:
    """The nodes of a graph, in order."""
    return tuple(
        NodeName(node.name, node.args[0].name, node.args[1])
        if node.target is operator.getitem
        else NodeName(node.name)
        for node in graph.nodes
    )


def load_program(program: bytes, nodes: tuple[NodeName, ...], partition: str) -> ExportedProgram:
    """The program with the very nodes that were saved, by name and in order, without its weights.

    ``torch.export.load`` renames nodes with several outputs and gives each output a ``getitem``,
    used or not. Names end up in engines.

    Args:
        program: What :func:`save_program` returned.
        nodes: The nodes of the saved program.
        partition: The partition's name, for messages.

    Raises:
        BuilderError: The program did not survive.
    """
    loaded: ExportedProgram = torch.export.load(io.BytesIO(program))
    if node_names(loaded.graph) == nodes:
        return loaded
    others = iter([n for n in loaded.graph.nodes if n.target is not operator.getitem])
    sources: dict[str, Node] = {}
    new: dict[Node, Node] = {}
    graph = Graph()
    try:
        for known in nodes:
            node = _output(sources[known.source], known.index) if known.source else next(others)
            sources[known.name] = node
            args, kwargs = map_arg((node.args, node.kwargs), new.__getitem__)
            new[node] = graph.create_node(node.op, node.target, args, kwargs, known.name)
            new[node].meta = dict(node.meta)
        graph.lint()
    except (KeyError, StopIteration, RuntimeError) as error:
        raise BuilderError(
            f"partition {partition} did not survive torch.export.save and load "
            f"({error!r}); build it in this process (executor=None)"
        ) from error
    return ExportedProgram(
        root=GraphModule(torch.nn.Module(), graph),
        graph=graph,
        graph_signature=loaded.graph_signature,
        state_dict=loaded.state_dict,
        range_constraints=loaded.range_constraints,
        module_call_graph=loaded.module_call_graph,
        example_inputs=None,
        constants=loaded.constants,
        verifiers=loaded.verifiers,
    )


def _output(source: Node, index: int) -> Node:
    return next(
        user for user in source.users if user.target is operator.getitem and user.args[1] == index
    )
