"""Stores the support check's answers, so that a later export need not import Torch-TensorRT.

Next to the engines there is one file for each set of versions and settings: a checksum, then JSON
with an answer for each kind of call. It is read once for a partitioning and written once, whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from trt_et.engine_program.canonical_text import NotSerializable, fragment_text
from trt_et.engines.checked_file import locked, read_checked, write_checked
from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported

_LIMIT: Final = 100_000  # Answers in a file; about 5 MB. A larger file is started again.
_log = logging.getLogger(__name__)

Answer = list[Any] | None
"""None: supported; else the reason, and the position of the call that it names or None."""


class SupportCache(dict[str, Answer]):
    """Answers for one fingerprint, by signature, in a file. Answers are only added.

    Args:
        folder: The files' folder; made when something is written.
        fingerprint: Everything that decides the answers, except the calls.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self._path = folder / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:32]}.json"
        super().__init__(_read(self._path))
        self._saved = len(self)

    def save(self) -> None:
        """Add the new answers to the file; disk errors are logged, not raised."""
        new = dict(islice(self.items(), self._saved, None))
        if not new:
            return
        try:
            with locked(self._path):
                # Other processes may have added answers.
                answers = _read(self._path) | new
                kept = answers if len(answers) <= _LIMIT else new
                text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
                write_checked(self._path, text.encode())
            self._saved = len(self)
        except OSError as error:
            _log.debug("answers about operators are not remembered in %s: %s", self._path, error)


def remembering(
    answers: dict[str, Answer], asked: dict[str, Answer], make: Callable[[], SupportCheck]
) -> SupportCheck:
    """Return a support check that remembers its answers.

    Args:
        answers: The known answers, by signature; added to.
        asked: The answers that the check gave; added to.
        make: Makes the underlying check; called before its first use.
    """
    underlying = cache(make)

    def check(fragment: Fragment) -> Unsupported | None:
        signature = fragment_signature(fragment)
        if signature is None:
            return underlying()(fragment)
        if signature not in answers:
            answers[signature] = _numbered(underlying()(fragment), fragment)
        asked[signature] = answers[signature]
        return _named(asked[signature], fragment)

    return check


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
