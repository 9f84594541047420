"""Torch-TensorRT's answers about operator support, kept so that asking again needs no import of it.

Next to the engines there is one file for each set of versions and settings: a checksum, then JSON
with an answer for each kind of call. It is read once for a partitioning and written once, whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from torch.fx import Node, map_arg

from trt_et.cache.checked_file import locked, read_checked, write_checked
from trt_et.lowering.canonical_text import NotSerializable, SymbolNames, target_text, value_text
from trt_et.partition.operator_support import SupportCheck

__all__ = ["CachedSupportCheck", "SupportCache", "node_signature"]

_LIMIT: Final = 100_000  # Answers in a file; about 5 MB. What is over it starts a new one.
_log = logging.getLogger(__name__)


class SupportCache:
    """Answers for one fingerprint.

    Args:
        folder: The files' folder; made when something is written.
        fingerprint: Everything that decides the answers besides the nodes.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self._path = folder / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:32]}.json"
        self._answers: dict[str, str | None] = _read(self._path)
        self._new: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, signature: str) -> bool:
        return signature in self._answers

    def __getitem__(self, signature: str) -> str | None:
        return self._answers[signature]

    def __setitem__(self, signature: str, reason: str | None) -> None:
        self._answers[signature] = self._new[signature] = reason

    def save(self) -> None:
        """Add what is new to the file. Whatever the disk says, this does not raise."""
        if not self._new:
            return
        try:
            with locked(self._path):
                # Others may have added theirs meanwhile.
                answers = {**_read(self._path), **self._new}
                kept = answers if len(answers) <= _LIMIT else self._new
                text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
                write_checked(self._path, text.encode())
            self._new.clear()
        except OSError as error:
            _log.debug("answers about operators are not remembered in %s: %s", self._path, error)


class CachedSupportCheck:
    """A support check that asks only about calls that the cache does not know.

    Args:
        memory: The answers.
        make: Makes the check that is asked; called when there is something to ask.
    """

    def __init__(self, memory: SupportCache, make: Callable[[], SupportCheck]) -> None:
        self._memory = memory
        self._make = make
        self._check: SupportCheck | None = None

    @property
    def asked(self) -> bool:
        """Whether anything had to be asked."""
        return self._check is not None

    def __call__(self, node: Node) -> str | None:
        """Why the node is unsupported; None if it is supported."""
        signature = node_signature(node)
        if signature is not None and signature in self._memory:
            return self._memory[signature]
        if self._check is None:
            self._check = self._make()
        reason = self._check(node)
        if signature is not None:
            self._memory[signature] = reason
        return reason


def node_signature(node: Node) -> str | None:
    """A digest of all that a converter's validator looks at; None where there is no text for it.

    Those of Torch-TensorRT look at a node's target, arguments and result, at dtypes, shapes and
    ranges, at what kind of node an argument is, and at how the result is used; ours also at what an
    argument broadcasts.
    """
    symbols = SymbolNames()
    numbers: dict[Node, int] = {}

    def number(argument: Node) -> str:
        return f"%{numbers.setdefault(argument, len(numbers))}"

    try:
        call = map_arg((node.args, dict(node.kwargs)), number)
        lines = [target_text(node.target), value_text(call, symbols)]
        for argument in (*numbers, node):
            value = value_text(argument.meta.get("val"), symbols)
            lines.append(f"{argument.op} {value}")
            if argument is not node and argument.target is torch.ops.aten.expand.default:
                source = argument.all_input_nodes[0].meta.get("val")
                lines.append(f"broadcast of {value_text(source, symbols)}")
        lines += sorted(_use(user) for user in node.users)
    except NotSerializable:
        return None
    return hashlib.sha256("\n".join([*lines, *symbols.facts]).encode()).hexdigest()[:32]


def _use(user: Node) -> str:
    index = user.args[1] if user.target is operator.getitem else ""
    return f"used by {user.op} {index}"


def _read(path: Path) -> dict[str, str | None]:
    try:
        answers: dict[str, str | None] = json.loads(read_checked(path) or b"{}")
    except ValueError:  # Whole, but of another version of this package.
        return {}
    return answers
