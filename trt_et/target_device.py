"""The ``target_device`` compile spec: the GPU on which ExecuTorch plans a delegate's tensors.

The spec places the buffers; the GPU that the *engine* runs on comes from its blob. For each
partition, the first of these is used: the caller's spec, verbatim; the index in the partition's
blob; ``cuda:0``, with a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Final

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.passes.propagate_device_pass import TARGET_DEVICE_COMPILE_SPEC_KEY

from trt_et.blob.codec import parse_device_id
from trt_et.blob.model import MAX_DEVICE_ID, EngineInfo
from trt_et.errors import DeviceIdError, OptionError

_FALLBACK: Final = 0
_DEVICE: Final = re.compile(r"cuda|(?:cuda:)?(\d{1,4})", re.IGNORECASE)
_SPEC_VALUE: Final = re.compile(rb"[A-Za-z_]+(:[0-9]+)?")
_log = logging.getLogger(__name__)


def parse_device(device: str | int | torch.device) -> int:
    """Return the index in ``"cuda:1"``, ``"cuda"`` (0), ``torch.device("cuda:1")``, ``1``, ``"1"``.

    Raises:
        OptionError: It is something else, or the index is over 127.
    """
    index: int | None = None
    if isinstance(device, str | torch.device):
        match = _DEVICE.fullmatch(str(device).strip())
        index = int(match[1] or 0) if match else None
    elif type(device) is int:
        index = device
    if index is None or not 0 <= index <= MAX_DEVICE_ID:
        raise OptionError(
            f"device {device!r} is not a GPU; expected 'cuda:<index>' or an index, "
            f"0..{MAX_DEVICE_ID}"
        )
    return index


def explicit_device(specs: Sequence[CompileSpec]) -> bytes | None:
    """Return the value of the caller's ``target_device`` spec, if there is one.

    Raises:
        OptionError: There are several that differ, or ExecuTorch cannot read it.
    """
    if wrong := [spec for spec in specs if not isinstance(spec, CompileSpec)]:
        raise OptionError(f"compile_specs has {wrong[0]!r}; expected CompileSpec objects")
    if texts := [spec for spec in specs if not isinstance(spec.value, bytes | bytearray)]:
        key, value = texts[0].key, texts[0].value
        raise OptionError(
            f"compile spec {key!r} is {value!r}; expected bytes, such as {str(value).encode()!r}"
        )
    values = [bytes(spec.value) for spec in specs if spec.key == TARGET_DEVICE_COMPILE_SPEC_KEY]
    if len(set(values)) > 1:
        raise OptionError(f"compile_specs has several target_device specs: {values}; expected one")
    if values and not _SPEC_VALUE.fullmatch(values[0]):
        raise OptionError(f"target_device is {values[0]!r}; expected such as b'cuda:1'")
    return values[0] if values else None


def resolve_target_device(
    partition: str, info: EngineInfo, blob: bytes, specs: list[CompileSpec]
) -> None:
    """Add a ``target_device`` to a partition's compile specs if they have none.

    Args:
        partition: The partition's name, for messages.
        info: The engine's facts in the blob.
        blob: The blob.
        specs: The partition's list of compile specs, which is changed.
    """
    explicit = explicit_device(specs)
    if explicit is None:
        try:
            index = parse_device_id(blob)
        except DeviceIdError as error:
            index = _FALLBACK
            _log.warning(
                "partition %s: %s; its tensors are planned on cuda:%d. Pin the GPU with "
                'compile_specs=[CompileSpec("target_device", b"cuda:<index>")]',
                partition,
                error,
                index,
            )
        specs.append(CompileSpec(TARGET_DEVICE_COMPILE_SPEC_KEY, f"cuda:{index}".encode()))
    elif info.device_id is not None and _index_of(explicit) != info.device_id:
        _log.warning(
            "partition %s: its engine is for cuda:%d but target_device pins its tensors to %s; "
            "every call will copy them between the two",
            partition,
            info.device_id,
            explicit.decode(),
        )


def _index_of(value: bytes) -> int | None:
    try:
        return parse_device(value.decode())
    except OptionError:
        return None
