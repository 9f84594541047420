"""Checks what a builder returned against the partition that it is for."""

from __future__ import annotations

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import EngineInfo
from trt_et.errors import BuilderError
from trt_et.lowering.lowered_partition import LoweredPartition
from trt_et.scheduler.build_runner import BuildJob
from trt_et.scheduler.engine_key import builder_fingerprint

__all__ = ["checked_info", "fits_this_machine"]


def fits_this_machine(info: EngineInfo, job: BuildJob) -> bool:
    """Whether an engine fits what its key says: another machine may have another GPU."""
    return not info.gpu_name or info.gpu_name in builder_fingerprint(job.builder)


def checked_info(blob: object, lowered: LoweredPartition, *, verify: bool = True) -> EngineInfo:
    """The metadata of what a builder returned, if it is an engine for this partition."""
    if not isinstance(blob, bytes):
        raise BuilderError(f"it returned {type(blob).__name__}, not the bytes of an engine blob")
    info = decode_blob(blob, verify=verify).info
    for what, found, expected in (
        ("inputs", info.inputs, lowered.inputs),
        ("outputs", info.outputs, lowered.outputs),
    ):
        if len(found) != len(expected):
            raise BuilderError(f"its engine has {len(found)} {what}; expected {len(expected)}")
        for index, (have, want) in enumerate(zip(found, expected, strict=True)):
            # A foreign blob names bindings only; what it does not say cannot be compared.
            if (have.dtype and have.dtype != want.dtype) or (
                have.dtype and have.shape != want.shape
            ):
                raise BuilderError(
                    f"its engine's {what[:-1]} {index} ({have.name}) is {have.dtype} "
                    f"{list(have.shape)}; expected {want.dtype} {list(want.shape)}"
                )
    return info
