"""What a caller keeps out of engines: operators, nodes, or whatever a function says."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import Node

from trt_et.errors import OptionError

__all__ = ["Exclusion", "Exclusions"]

Exclusion = str | OpOverload | OpOverloadPacket | Callable[[Node], bool]


class Exclusions:
    """The caller's ``excluded_ops``, ready to be asked.

    Args:
        items: Overloads; packets (``torch.ops.aten.mul``: all of its overloads); either of them by
            name (``"aten.mul.Tensor"``, ``"aten::mul"``); names of nodes, which hold no dot (of
            those in a branch also with its path: ``"cond/true/aten_mul_tensor"``); or functions
            from a node to whether it is out.

    Raises:
        OptionError: An item is none of these, or names an operator that does not exist.
    """

    def __init__(self, items: Collection[Exclusion] = ()) -> None:
        if isinstance(items, str) or not isinstance(items, Collection):
            raise OptionError(
                f"excluded_ops is {items!r}; expected a collection, such as ['aten.mul']"
            )
        self._operators: set[str] = set()
        self._nodes: set[str] = set()
        self._functions: list[Callable[[Node], bool]] = []
        for item in items:
            if isinstance(item, (str, OpOverload, OpOverloadPacket)):
                self._add_name(str(item))
            elif callable(item):
                self._functions.append(item)
            else:
                raise OptionError(
                    f"excluded_ops holds {item!r}; expected an operator, the name of an operator "
                    "or of a node, or a function from a node to a bool"
                )

    def reason(self, node: Node, operator: OpOverload, path: str) -> str | None:
        """Why the caller keeps a node out; None where it does not.

        Args:
            node: The node, in whichever dialect it stands.
            path: Its name with the branch that it stands in, as :meth:`Place.name_of` has it.
            operator: The overload that it calls. ``aten.view`` also names the ``aten.view_copy``
                that the Edge dialect calls instead.
        """
        if not self._operators.isdisjoint(_names(operator)):
            return "its operator is excluded by the caller"
        named = node.name in self._nodes or path in self._nodes
        if named or any(excludes(node) for excludes in self._functions):
            return "it is excluded by the caller"
        return None

    def _add_name(self, text: str) -> None:
        name = text.replace("::", ".").removeprefix("torch.ops.")
        if "." not in name:
            self._nodes.add(name)
        elif _exists(name):
            self._operators.add(name)
        else:
            raise OptionError(
                f"excluded_ops names the operator {text!r}, which torch.ops does not have; "
                "expected a name such as 'aten.mul' or 'aten.mul.Tensor'"
            )


def _names(operator: OpOverload) -> set[str]:
    """``aten.mul`` and ``aten.mul.Tensor``."""
    packet = operator._schema.name.replace("::", ".")
    packets = {packet, packet.removesuffix("_copy")}
    return packets | {f"{each}.{operator._overloadname}" for each in packets}


def _exists(name: str) -> bool:
    found: object = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return False
    return isinstance(found, (OpOverload, OpOverloadPacket))
