"""Builds engines that update buffers in place, and without that where TensorRT fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from trt_et.builders.base import BuildRequest
from trt_et.conversion.rewrites.index_put import broadcast_index_put_values
from trt_et.conversion.rewrites.kv_cache_update import update_in_place
from trt_et.errors import BuildCancelled, BuilderUnavailable, OptionError
from trt_et.lowering.lowered_partition import unlift

__all__ = ["build_with_in_place_fallback"]

_log = logging.getLogger(__name__)


def build_with_in_place_fallback(
    build: Callable[[BuildRequest], bytes], request: BuildRequest
) -> bytes:
    """Build an engine; where TensorRT fails, build once more without updates in place.

    Args:
        build: Builds it.
        request: Its ``aliased_outputs`` may be made in place.

    Raises:
        BuilderError: It cannot be built either way.
    """
    try:
        return build(request)
    except (BuildCancelled, BuilderUnavailable, OptionError):
        raise
    except Exception as error:
        # Whatever it was: a program that can be exported without this is exported.
        if not _updates_anything(request):
            raise
        _log.warning(
            "partition %s: no engine that writes state in place (%s); building one that does not",
            request.partition,
            error,
        )
    # Here the failed build's memory is free again.
    return build(replace(request, lowered=replace(request.lowered, aliased_outputs=())))


def _updates_anything(request: BuildRequest) -> bool:
    if not request.lowered.aliased_outputs:
        return False
    module = unlift(request.lowered.program)
    broadcast_index_put_values(module)
    return bool(update_in_place(module, request.lowered.aliased_outputs))
