"""Warns about models that were exported without ``model.eval()``."""

from __future__ import annotations

import logging
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

__all__ = ["warn_training_mode"]

_log = logging.getLogger(__name__)

# Operators that compute something else in training mode, and the argument that chooses it.
_TRAINING: Final = {
    "aten::dropout": "train",
    "aten::feature_dropout": "train",
    "aten::alpha_dropout": "train",
    "aten::feature_alpha_dropout": "train",
    "aten::native_dropout": "train",
    "aten::rrelu": "training",
    "aten::batch_norm": "training",
    "aten::native_batch_norm": "training",
    "aten::_native_batch_norm_legit": "training",
    "aten::_native_batch_norm_legit_functional": "training",
}


def warn_training_mode(program: ExportedProgram) -> None:
    """Warn if an operator of the program, as ``torch.export`` returns it, is in training mode."""
    found = [node for node in program.graph.nodes if _is_training(node)]
    if found:
        _log.warning(
            "%d operator(s) are in training mode, such as %s (%s): outputs are random or depend on "
            "the other samples of the batch. Call model.eval() before torch.export",
            len(found),
            found[0].name,
            found[0].target,
        )


def _is_training(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = _TRAINING.get(node.target._schema.name)
    if name is None:
        return False
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            given = node.args[index] if index < len(node.args) else node.kwargs.get(name)
            return bool(argument.default_value if given is None else given)
    return False
