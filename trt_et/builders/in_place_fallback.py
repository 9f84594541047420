"""Engines that write state in place, and those without where TensorRT refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from trt_et.builders.base import BuildRequest
from trt_et.conversion.network import unlift
from trt_et.conversion.rewrites.index_put import state_written_values
from trt_et.conversion.rewrites.kv_cache_update import update_in_place
from trt_et.errors import BuildCancelled, BuilderUnavailable, OptionError

__all__ = ["built_in_place_or_not"]

_log = logging.getLogger(__name__)


def built_in_place_or_not(build: Callable[[BuildRequest], bytes], request: BuildRequest) -> bytes:
    """Build an engine, and where TensorRT refuses, once more without any update in place.

    Args:
        build: Builds it.
        request: Says what may be updated in place.

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
    return build(replace(request, lowered=replace(request.lowered, updates=())))


def _updates_anything(request: BuildRequest) -> bool:
    if not request.lowered.updates:
        return False
    module = unlift(request.lowered.program)
    state_written_values(module)
    return bool(update_in_place(module, request.lowered.updates))
