"""Imports Torch-TensorRT, even without a GPU, and collects the errors that TensorRT logs."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import torch

from trt_et.conversion.torch_tensorrt_patches import without_gpu, without_runtime
from trt_et.errors import BuilderError

_log = logging.getLogger(__name__)
_COLLECTING: Final = threading.Lock()
_collectors: set[logging.Handler] = set()
_SHOWN: Final = logging.StreamHandler()
_SHOWN.setFormatter(logging.Formatter("TensorRT: %(message)s"))


def tensorrt_log() -> logging.Logger:
    """Return the logger that Torch-TensorRT passes TensorRT's messages to."""
    return logging.getLogger("torch_tensorrt [TensorRT Conversion Context]")


@contextlib.contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Collect the errors that TensorRT logs, in place of showing them.

    The caller puts them into its exception. TensorRT logs through Torch-TensorRT's logger. With
    ``TRT_ET_LOG=debug``, all that TensorRT logs is shown on standard error.
    """
    messages: list[str] = []
    is_shown = os.environ.get("TRT_ET_LOG") == "debug"

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    collector = Collector(logging.ERROR)
    log = tensorrt_log()
    with _COLLECTING:
        _collectors.add(collector)
        log.propagate = False
        log.addHandler(collector)
        if is_shown:
            log.setLevel(logging.DEBUG)
            log.addHandler(_SHOWN)
    try:
        yield messages
    finally:
        with _COLLECTING:
            log.removeHandler(collector)
            _collectors.discard(collector)
            log.propagate = not _collectors
            if not _collectors:
                log.removeHandler(_SHOWN)


@cache
def torch_tensorrt() -> Any:  # noqa: ANN401
    """Import Torch-TensorRT, quietly, and return it.

    Raises:
        BuilderError: It is installed but cannot be imported.
    """
    printed = io.StringIO()
    library_log = logging.getLogger("torch_tensorrt")
    # It uses names that torch 2.14 calls deprecated.
    torch_logs = [logging.getLogger(name) for name in ("torch._library", "torch._opaque_base")]
    levels = {log: log.level for log in (library_log, *torch_logs)}
    captures = logging._warnings_showwarning is not None  # type: ignore[attr-defined]
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(printed))
            for log in torch_logs:
                log.setLevel(logging.ERROR)
            if not torch.cuda.is_available():
                stack.enter_context(without_gpu())
                stack.enter_context(without_runtime())
                # It complains of the missing GPU and of optional packages (modelopt).
                library_log.setLevel(logging.CRITICAL)
            import torch_tensorrt
            import torch_tensorrt.dynamo
        # Its converters compute sizes from numbers, which it advises to fold.
        warnings.filterwarnings("ignore", "Both operands of the binary elementwise op")
    except Exception as error:
        # A third party's import can fail in any way; the error keeps the cause.
        raise BuilderError(
            f"Torch-TensorRT is installed but cannot be imported: {error}. It printed: "
            f"{printed.getvalue().strip() or 'nothing'}"
        ) from error
    finally:
        for log, level in levels.items():
            log.setLevel(level)
        # It turns all warnings of the process into log messages.
        logging.captureWarnings(captures)
        if printed.getvalue():
            _log.debug("importing torch_tensorrt printed: %s", printed.getvalue().strip())
    return torch_tensorrt


def is_importable() -> bool:
    """Check whether the converters can be used here; log the reason if not."""
    try:
        torch_tensorrt()
    except BuilderError as error:
        _log.warning("%s", error)
        return False
    return True
