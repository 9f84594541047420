"""Find the mutated buffers that one partition may write in place, given the whole program.

An engine that updates a buffer in place (a KV cache) destroys its old value. That is correct
only if nothing else reads the old value: no other partition, no operator on the CPU, no branch, and
not the caller. The builder checks the partition itself
(``trt_et/conversion/operators/caches.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Graph, Node


@dataclass(frozen=True)
class InPlaceBuffer:
    """A buffer whose old value only one partition reads, and the output that is its new value.

    Attributes:
        buffer: The input: a placeholder's name in the program, a binding's in a partition.
        value: The output: a node's name in the program, a binding's in a partition.
        refuses_negative_indices: Whether eager takes no negative positions. ``index_copy`` refuses
            them, ``index_put``, which it has become in the Edge dialect, counts them from the end.
    """

    buffer: str
    value: str
    refuses_negative_indices: bool = False


def find_in_place_buffers(
    program: ExportedProgram, partitions: Sequence[Collection[Node]]
) -> list[tuple[InPlaceBuffer, ...]]:
    """Return the buffers that each partition of an Edge program may write in place.

    In a branch, buffers are arguments, so a partition there gets none.
    """
    home = {node: index for index, nodes in enumerate(partitions) for node in nodes}
    signature = program.graph_signature
    by_name = {node.name: node for node in program.graph.nodes}
    names = {target: name for name, target in signature.inputs_to_buffers.items()}
    uses = Counter(str(getattr(spec.arg, "name", "")) for spec in signature.output_specs)
    buffers_of: list[list[InPlaceBuffer]] = [[] for _ in partitions]
    for spec in signature.output_specs:
        if spec.kind is not OutputKind.BUFFER_MUTATION:
            continue
        buffer = by_name.get(names.get(str(spec.target), ""))
        value = by_name.get(spec.arg.name)
        if (
            buffer is not None
            and value in home
            # Exactly once: skip two buffers with one new value, and a buffer that is also returned.
            and uses[spec.arg.name] == 1
            and buffer.users
            and all(home.get(user) == home[value] for user in buffer.users)
        ):
            # Compare names: if lowering copies a graph, this is a copy of the operator.
            copied = str(value.meta.get("original_aten")) == "aten.index_copy.default"
            buffers_of[home[value]].append(InPlaceBuffer(buffer.name, value.name, copied))
    return [tuple(buffers) for buffers in buffers_of]


def with_binding_names(
    buffers: Sequence[InPlaceBuffer], graph: Graph, users: Collection[str]
) -> tuple[InPlaceBuffer, ...]:
    """Return the buffers whose input and output a partition has, by binding name.

    ``users`` has the names of the placeholders of its graph that are inputs.
    """
    given = [node for node in graph.find_nodes(op="placeholder") if node.name in users]
    inputs = {node.name: f"input{index}" for index, node in enumerate(given)}
    results: Any = graph.output_node().args[0]
    outputs = {
        result.name: f"output{index}"
        for index, result in enumerate(results)
        if isinstance(result, Node)
    }
    return tuple(
        replace(each, buffer=inputs[each.buffer], value=outputs[each.value])
        for each in buffers
        if each.buffer in inputs and each.value in outputs
    )
