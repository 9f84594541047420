"""Facts that are written on the nodes of a program and travel with it.

ExecuTorch runs the passes of all methods before it partitions any, and decomposes programs in
between. torch copies ``node.meta["custom"]`` to the nodes that a node is decomposed to, also those
of inputs and outputs; ``graph_module.meta`` is lost.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from torch.fx import Node

_CUSTOM = "custom"


class Mark:
    """One fact about nodes.

    Values are numbers, texts and lists: ``torch.export.save`` writes them as JSON.
    """

    def __init__(self, name: str) -> None:
        self._name = f"trt_et.{name}"

    @classmethod
    def own(cls, name: str) -> Mark:
        """Return a mark that no other object or process reads, such as another partitioner."""
        return cls(f"{name}.{uuid4().hex[:12]}")

    def write(self, node: Node, value: object) -> None:
        """Write a value on a node; None removes it."""
        custom = dict(_custom(node))  # Copies of a program share the dictionary.
        if value is not None:
            node.meta[_CUSTOM] = {**custom, self._name: value}
        elif custom.pop(self._name, None) is not None:
            node.meta[_CUSTOM] = custom

    def of(self, node: Node) -> Any:  # noqa: ANN401
        """Return the value on a node; None without one."""
        return _custom(node).get(self._name)


KEEPS_FLOAT32 = Mark("keeps_float32")
"""Why a call computes in float32 whatever ``precision`` says."""


def inherit_marks(new: Node, old: Node) -> None:
    """Write the marks of a node on one that replaces it."""
    if _custom(old):
        new.meta[_CUSTOM] = {**_custom(new), **_custom(old)}


def _custom(node: Node) -> dict[str, Any]:
    custom: dict[str, Any] = node.meta.get(_CUSTOM) or {}
    return custom
