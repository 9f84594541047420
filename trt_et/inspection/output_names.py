"""The names that a model gives its outputs: the keys of a dict, or the fields of a data class.

ExecuTorch keeps the model's result in the program as ``torch.utils._pytree`` writes it (JSON).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def output_names(text: str, count: int) -> tuple[str, ...]:
    """Return each output's name, such as ``logits`` or ``states.0``; empty: the model has none.

    Args:
        text: ``[version, structure]``, in JSON.
        count: The number of outputs.
    """
    try:
        _, structure = json.loads(text)
        names = tuple(_leaves(structure, ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        names = ()
    is_named = len(names) == count and any(
        not part.isdigit() for part in ".".join(names).split(".")
    )
    return names if is_named else ("",) * count


def _leaves(structure: Any, path: str) -> Iterator[str]:  # noqa: ANN401
    if structure["type"] is None:
        yield path
        return
    children = structure["children_spec"]
    context = json.loads(structure["context"] or "null")
    named = isinstance(context, list) and len(context) == len(children)
    for key, child in zip(context if named else range(len(children)), children, strict=True):
        yield from _leaves(child, f"{path}.{key}" if path else str(key))
