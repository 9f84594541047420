"""A check, on the CPU, that the tokens of a call fit the KV cache.

TensorRT skips rows beyond a cache without an error. ExecuTorch removes the checks of a program, but
its ``index_select`` refuses indices outside of a tensor: the position is looked up in a table of
all positions, and the engine gets the result.

A recurrent state belongs to the last call's end: a call begins a text, or continues from there.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.graph.marks import Mark

_CHECK: Final = Mark("position_check")
_TABLE: Final = "known_positions"
_NEXT: Final = "next_position"


class PositionCheck(nn.Module):
    """Return the position of the first token, if the positions of all tokens are in the cache.

    Args:
        cache_length: Positions of the cache.
        in_order: The position must also be 0, or the one after the last call's tokens.
    """

    known_positions: torch.Tensor
    next_position: torch.Tensor

    def __init__(self, cache_length: int, *, in_order: bool = False) -> None:
        super().__init__()
        self.in_order = in_order
        positions = torch.arange(cache_length, dtype=torch.long)
        self.register_buffer(_TABLE, positions, persistent=False)
        if in_order:
            start = torch.zeros(1, dtype=torch.long)
            self.register_buffer(_NEXT, start, persistent=False)

    def forward(self, position: torch.Tensor, count: int) -> torch.Tensor:
        """Look up ``count`` positions from ``position`` on, which has shape [1]."""
        positions = position + torch.arange(count, device=position.device)
        if self.in_order:
            other = (position != 0) & (position != self.next_position)
            positions = torch.where(other, self.known_positions.shape[0], positions)
            self.next_position.copy_(position + count)
        return self.known_positions.index_select(0, positions)[:1]


def mark_position_check(program: ExportedProgram) -> None:
    """Mark the operators of the check, so that ``is_position_check`` finds them later."""
    buffers = program.graph_signature.inputs_to_buffers
    for buffer in program.graph.nodes:
        name = buffers.get(buffer.name, "").rpartition(".")[2]
        if name not in (_TABLE, _NEXT):
            continue
        for user in buffer.users:
            for node in (user, *_before(user), *(user.users if name == _TABLE else ())):
                _CHECK.write(node, True)


def is_position_check(node: Node) -> bool:
    """Check whether a node belongs to a marked check."""
    return bool(_CHECK.of(node))


def _before(node: Node) -> list[Node]:
    """Return the tensors that a node is computed from."""
    users: list[Node] = []
    for used in node.all_input_nodes:
        if used.op == "call_function" and isinstance(used.meta.get("val"), torch.Tensor):
            users += [used, *_before(used)]
    return users
