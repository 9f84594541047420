"""Torch-TensorRT, imported where there may be no GPU.

Torch-TensorRT asks the CUDA device about itself when it is imported and expects its C++ runtime.
Neither is needed to fill a TensorRT network, so where there is no GPU both questions are answered
for it while it works (:func:`without_gpu`); nothing stays patched afterwards.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from unittest import mock

import torch

from trt_et.errors import BuilderError
from trt_et.graph.tracing import TRACING

__all__ = ["is_importable", "logged_errors", "quietly", "torch_tensorrt", "without_gpu"]

_log = logging.getLogger(__name__)


class _DeclaredDevice:
    """What Torch-TensorRT asks of a GPU that is not there; no engine depends on the answers."""

    name = "declared by trt-et"
    major, minor = 8, 9
    total_memory = 24 << 30
    multi_processor_count = 1


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """Answer Torch-TensorRT's questions about the GPU where there is none; one thread at a time."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(TRACING)
        if torch.cuda.is_available():
            yield
            return
        device = _DeclaredDevice()
        answers: dict[str, Callable[..., Any]] = {
            "get_device_capability": lambda *_: (device.major, device.minor),
            "get_device_properties": lambda *_: device,
            "current_device": lambda: 0,
        }
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        if not hasattr(torch._C, "_CudaDeviceProperties"):
            stack.enter_context(
                mock.patch.object(torch._C, "_CudaDeviceProperties", _DeclaredDevice, create=True)
            )
        yield


@contextlib.contextmanager
def _without_runtime() -> Iterator[None]:
    """Import Torch-TensorRT in its own "no C++ runtime" configuration.

    ``libtorchtrt.so`` links to libtorch's CUDA part, which a CPU build of torch does not have, and
    whether the file exists is how Torch-TensorRT decides.
    """
    real = os.path.isfile

    def isfile(path: Any) -> bool:  # noqa: ANN401
        return "libtorchtrt" not in os.path.basename(str(path)) and real(path)  # noqa: PTH119

    with mock.patch.object(os.path, "isfile", isfile):
        yield


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Drop one warning that Torch-TensorRT's logging of node inputs repeats by the dozen."""
    log = logging.getLogger("torch_tensorrt.dynamo.conversion.converter_utils")

    def wanted(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Detected unparsable type in node formatting")

    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


@contextlib.contextmanager
def logged_errors() -> Iterator[list[str]]:
    """The errors that TensorRT logs meanwhile, through the logger that Torch-TensorRT gives it."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    collector = Collector(logging.ERROR)
    log = logging.getLogger("torch_tensorrt [TensorRT Conversion Context]")
    log.addHandler(collector)
    try:
        yield messages
    finally:
        log.removeHandler(collector)


@cache
def torch_tensorrt() -> Any:  # noqa: ANN401
    """Import Torch-TensorRT, quietly, and return it.

    Raises:
        BuilderError: It is installed but cannot be imported.
    """
    printed = io.StringIO()
    library_log = logging.getLogger("torch_tensorrt")
    level = library_log.level
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(printed))
            if not torch.cuda.is_available():
                stack.enter_context(without_gpu())
                stack.enter_context(_without_runtime())
                # It complains of the missing GPU and of optional packages (modelopt).
                library_log.setLevel(logging.CRITICAL)
            import torch_tensorrt
            import torch_tensorrt.dynamo
    except Exception as error:
        # Any failure of a third party's import; the cause goes along.
        raise BuilderError(
            f"Torch-TensorRT is installed but cannot be imported: {error}. It printed: "
            f"{printed.getvalue().strip() or 'nothing'}"
        ) from error
    finally:
        library_log.setLevel(level)
        if printed.getvalue():
            _log.debug("importing torch_tensorrt printed: %s", printed.getvalue().strip())
    return torch_tensorrt


def is_importable() -> bool:
    """Whether the converters can be used here; logs why not."""
    try:
        torch_tensorrt()
    except BuilderError as error:
        _log.warning("%s", error)
        return False
    return True
