"""Chooses the support check of a builder, and remembers its answers.

Unless a builder has its own, the check is by Torch-TensorRT's converters: reference engines replace
real ones, so they hold the same nodes. Without Torch-TensorRT, the builder that takes its place
(``RtxParserBuilder``) checks. If its packages are not installed either, the reference builder
supports the operators of ExecuTorch's CPU kernels, and a warning reports it.

The answers are also stored, so that a later export need not import Torch-TensorRT. Next to the
engines there is one file for each set of versions and settings: a checksum, then JSON with an
answer for each kind of call. It is read once for a partitioning and written once, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch

from trt_et.blob.model import REFERENCE_BUILDER
from trt_et.conversion.installed import installed_variant, uses_rtx_parser
from trt_et.conversion.torch_tensorrt_patches import without_gpu
from trt_et.engine_program.canonical_text import (
    NotSerializable,
    SymbolNames,
    fragment_text,
    value_text,
)
from trt_et.engines.base import EngineBuilder
from trt_et.engines.cache import EngineCache
from trt_et.engines.checked_file import locked, read_checked, write_checked
from trt_et.engines.fingerprint import fingerprint_of, has_foreign_converters
from trt_et.engines.key import builder_fingerprint
from trt_et.engines.rtx_network import RtxParserBuilder
from trt_et.graph.cpu_kernels import unsupported_by_cpu_kernels
from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported
from trt_et.options import BuildOptions
from trt_et.requirements import install_command

_LIMIT: Final = 100_000  # Answers in a file; about 5 MB. A larger file is started again.
_log = logging.getLogger(__name__)

Answer = list[Any] | None
"""None: supported; else the reason, and the position of the call that it names or None."""

# The answers of this process, by fingerprint.
_KNOWN: Final[dict[str, dict[str, Answer]]] = {}


@contextlib.contextmanager
def cached_support_check(
    builder: EngineBuilder, options: BuildOptions, cache: EngineCache | None
) -> Iterator[SupportCheck]:
    """Make a builder's support check, which gives reasons why engines refuse calls of plain ATen.

    It remembers its answers in this process, and in ``cache`` if there is one.

    Raises:
        OptionError: ``options`` has a setting that Torch-TensorRT does not know.
    """
    own = builder.make_support_check(options)
    if own is None and uses_rtx_parser():
        builder = RtxParserBuilder()
        own = builder.make_support_check(options)
    fingerprint = _default_fingerprint(options) if own is None else builder_fingerprint(builder)

    def make() -> SupportCheck:
        return _default_check(builder, options) if own is None else own

    with without_gpu():
        if not fingerprint:
            yield make()
            return
        known = _KNOWN.setdefault(fingerprint, {})
        if cache is None:
            yield remembering(known, {}, make)
            return
        stored = SupportCache(cache.support_folder, fingerprint)
        known.update(stored)
        yield remembering(known, stored, make)
    stored.save()


def _default_check(builder: EngineBuilder, options: BuildOptions) -> SupportCheck:
    if _uses_converters(builder):
        from trt_et.conversion import trial

        return trial.try_as_network(options)
    _say_once()

    def check(fragment: Fragment) -> Unsupported | None:
        for call in fragment.calls:
            reason = unsupported_by_cpu_kernels(call)
            if reason is not None:
                return Unsupported(reason, call.name)
        return None

    return check


def _uses_converters(builder: EngineBuilder) -> bool:
    """Return whether the builder uses Torch-TensorRT's converters; import it."""
    if installed_variant() is None:
        return False
    from trt_et.conversion import torch_tensorrt_import

    return builder.name != REFERENCE_BUILDER or torch_tensorrt_import.is_importable()


def _default_fingerprint(options: BuildOptions) -> str:
    if installed_variant() is None or has_foreign_converters():
        return ""
    try:
        settings = value_text(options.compilation_settings(), SymbolNames())
    except NotSerializable:
        return ""
    # Some validators depend on the GPU.
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return fingerprint_of(settings, gpu, tensorrt=True)


@cache
def _say_once() -> None:
    _log.warning(
        "Torch-TensorRT cannot be imported, so nothing checks which operators TensorRT supports: "
        "partitions get every operator with a CPU kernel. To check, install it: "
        "%s",
        install_command("torch-tensorrt-rtx"),
    )


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
