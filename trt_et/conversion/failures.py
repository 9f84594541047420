"""Words for the exceptions of converters, which raise any class."""

from __future__ import annotations

import logging
import re
from typing import Final

from trt_et.errors import TrtEtError

_log = logging.getLogger(__name__)

_LONGEST: Final = 300
_OBJECT: Final = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>")
# A method of TensorRT's, and what Torch-TensorRT calls a layer.
_METHOD: Final = re.compile(r"\bI[A-Z]\w+::\w+: ")
_LAYER: Final = re.compile(r"\[([A-Z_]+)\]-\[[\w.]*\]-\[\w*\]")
# Their messages are about the arguments; those of others are about Python.
_WORDED: Final = (AssertionError, NotImplementedError, RuntimeError, ValueError)


def failure_of(who: str, error: Exception) -> str:
    """Return the sentence that ``who`` fails, with the message if it is about the arguments.

    An error of this package is a sentence already.
    """
    if isinstance(error, TrtEtError):
        return str(error)
    _log.debug("%s fails", who, exc_info=error)
    text = str(error).partition("\n\nWhile executing")[0] if isinstance(error, _WORDED) else ""
    words = " ".join(text.split())[:_LONGEST]
    return f"{who} fails with these arguments" + (f": {without_objects(words)}" if words else "")


def without_objects(text: str) -> str:
    """Leave out addresses, and names that only a library's source explains."""
    return _LAYER.sub(r"\1", _METHOD.sub("", _OBJECT.sub("a tensor", text)))
