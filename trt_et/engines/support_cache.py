"""Stores the support check's answers, so that a later export need not import Torch-TensorRT.

Next to the engines there is one file for each set of versions and settings: a checksum, then JSON
with an answer for each kind of call. It is read once for a partitioning and written once, whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

from trt_et.engines.checked_file import locked, read_checked, write_checked
from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported
from trt_et.lowering.canonical_text import NotSerializable, fragment_text

_LIMIT: Final = 100_000  # Answers in a file; about 5 MB. A larger file is started again.
_log = logging.getLogger(__name__)

Answer = list[Any] | None
"""None: supported; else the reason, and the position of the call that it names or None."""


class SupportCache:
    """Answers for one fingerprint, in a file.

    Args:
        folder: The files' folder; made when something is written.
        fingerprint: Everything that decides the answers, except the calls.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self._path = folder / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:32]}.json"
        self._answers: dict[str, Answer] = _read(self._path)
        self._new: dict[str, Answer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, signature: str) -> bool:
        return signature in self._answers

    def __getitem__(self, signature: str) -> Answer:
        return self._answers[signature]

    def __setitem__(self, signature: str, answer: Answer) -> None:
        self._answers[signature] = self._new[signature] = answer

    def save(self) -> None:
        """Add the new answers to the file; disk errors are logged, not raised."""
        if not self._new:
            return
        try:
            with locked(self._path):
                # Other processes may have added answers.
                answers = {**_read(self._path), **self._new}
                kept = answers if len(answers) <= _LIMIT else self._new
                text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
                write_checked(self._path, text.encode())
            self._new.clear()
        except OSError as error:
            _log.debug("answers about operators are not remembered in %s: %s", self._path, error)


class CachedSupportCheck:
    """A support check that remembers its answers.

    Args:
        known: The answers of this process; added to.
        stored: The answers on disk; None: there is no cache.
        make: Makes the underlying check; called before its first use.
    """

    def __init__(
        self,
        known: MutableMapping[str, Answer],
        stored: SupportCache | None,
        make: Callable[[], SupportCheck],
    ) -> None:
        self._known = known
        self._stored = stored
        self._make = make
        self._check: SupportCheck | None = None

    def __call__(self, fragment: Fragment) -> Unsupported | None:
        """Return why the calls are unsupported; None if they are supported."""
        signature = fragment_signature(fragment)
        if signature is None:
            return self._ask(fragment)
        if signature not in self._known:
            if self._stored is not None and signature in self._stored:
                self._known[signature] = self._stored[signature]
            else:
                self._known[signature] = _numbered(self._ask(fragment), fragment)
        if self._stored is not None and signature not in self._stored:
            self._stored[signature] = self._known[signature]
        return _named(self._known[signature], fragment)

    def _ask(self, fragment: Fragment) -> Unsupported | None:
        if self._check is None:
            self._check = self._make()
        return self._check(fragment)


def fragment_signature(fragment: Fragment) -> str | None:
    """Return a digest of all that decides a conversion; None if a value has no text."""
    try:
        return hashlib.sha256(fragment_text(fragment).encode()).hexdigest()[:32]
    except NotSerializable:
        return None


def _numbered(answer: Unsupported | None, fragment: Fragment) -> Answer:
    """Return the answer with its call's position, because the call's name differs next time."""
    if answer is None:
        return None
    names = [call.name for call in fragment.calls]
    return [answer.reason, names.index(answer.node) if answer.node in names else None]


def _named(answer: Answer, fragment: Fragment) -> Unsupported | None:
    if answer is None:
        return None
    reason, position = answer
    return Unsupported(reason, None if position is None else fragment.calls[position].name)


def _read(path: Path) -> dict[str, Answer]:
    try:
        answers: dict[str, Answer] = json.loads(read_checked(path) or b"{}")
    except ValueError:  # Intact, but of another version of this package.
        return {}
    return answers
