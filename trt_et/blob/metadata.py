"""Convert the facts of an engine to JSON and back (``docs/blob.md``, "Metadata")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trt_et.blob.model import DTYPES, MAX_DEVICE_ID, Alias, Binding, EngineInfo
from trt_et.errors import BlobError

__all__ = ["info_from", "is_device_id", "metadata_of", "shorten"]

_MAX_RANK: Final = 16
_INT64_MAX: Final = 2**63 - 1
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def metadata_of(info: EngineInfo) -> dict[str, Any]:
    """Return the facts of an engine as a JSON object.

    Raises:
        BlobError: The device id is no index.
    """
    if info.device_id is not None and not is_device_id(info.device_id):
        raise BlobError(f"device_id {info.device_id!r} is not an integer in 0..{MAX_DEVICE_ID}")
    document: dict[str, Any] = {"io_bindings": [_binding_document(b) for b in info.bindings]}
    if info.aliases:
        document["aliased_io"] = [
            {"output": a.output, "input": a.input, "kind": a.kind} for a in info.aliases
        ]
    document["hardware_compatible"] = info.hardware_compatible
    if info.device_id is not None:
        document["device_id"] = info.device_id
    document["serialized_metadata"] = info.serialized_metadata
    document["target_platform"] = info.target_platform
    # All of Torch-TensorRT's keys, for its reader; ours only if they are not empty.
    ours = {
        "builder": info.builder,
        "library_version": info.library_version,
        "compute_capabilities": list(info.compute_capabilities),
        "gpu_name": info.gpu_name,
        "precision": info.precision,
        "sha256": info.sha256,
        "network": None if info.network is None else dict(info.network),
    }
    return document | {key: value for key, value in ours.items() if value}


def _binding_document(binding: Binding) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": binding.name,
        "dtype": binding.dtype,
        "shape": list(binding.shape),
        "is_input": binding.is_input,
    }
    for key in ("min_shape", "opt_shape", "max_shape", "dim_order"):
        value = getattr(binding, key)
        if value is not None:
            document[key] = list(value)
    if binding.value_of:
        document["value_of"] = binding.value_of
    return document


def info_from(document: Mapping[str, Any]) -> EngineInfo:
    """Read the facts from a JSON object, and check every type and value.

    Raises:
        BlobError: A field is missing or invalid. An invalid ``device_id`` becomes None.
    """
    bindings = tuple(
        _binding_from(entry, index)
        for index, entry in enumerate(_get(document, "io_bindings", list, required=True))
    )
    names = [binding.name for binding in bindings]
    if len(set(names)) != len(names):
        raise BlobError("two bindings of the engine have the same name")
    aliases = tuple(
        Alias(
            _get(entry, "output", str, required=True),
            _get(entry, "input", str, required=True),
            _get(entry, "kind", str, default="kv_cache_update"),
        )
        for entry in _get(document, "aliased_io", list, default=[])
    )
    by_name = {binding.name: binding for binding in bindings}
    for alias in aliases:
        source, sink = by_name.get(alias.input), by_name.get(alias.output)
        if source is None or sink is None or not source.is_input or sink.is_input:
            raise BlobError(f"alias {alias.output!r} -> {alias.input!r} names no output and input")
    capabilities = _get(document, "compute_capabilities", list, default=[])
    if not all(isinstance(item, str) for item in capabilities):
        raise BlobError("compute_capabilities of an engine blob must be strings")
    sha256 = _get(document, "sha256", str, default="")
    if sha256 and not _SHA256.fullmatch(sha256):
        raise BlobError(f"sha256 of an engine blob is {shorten(sha256)}: not 64 hex digits")
    device_id = document.get("device_id")
    return EngineInfo(
        bindings=bindings,
        device_id=device_id if is_device_id(device_id) else None,
        builder=_get(document, "builder", str, default=""),
        library_version=_get(document, "library_version", str, default=""),
        compute_capabilities=tuple(capabilities),
        gpu_name=_get(document, "gpu_name", str, default=""),
        hardware_compatible=_get(document, "hardware_compatible", bool, default=False),
        target_platform=_get(document, "target_platform", str, default=""),
        precision=_get(document, "precision", str, default=""),
        sha256=sha256,
        aliases=aliases,
        serialized_metadata=_get(document, "serialized_metadata", str, default=""),
        network=_network_from(document),
    )


def _network_from(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    network: Mapping[str, Any] | None = _get(document, "network", dict, default=None)
    if network is not None:
        weights = _get(network, "weights", list, required=True, where="network")
        if not all(isinstance(key, str) for key in weights):
            raise BlobError("network: weights of an engine blob must be strings")
    return network


def _binding_from(entry: object, index: int) -> Binding:
    where = f"binding {index}"
    name = _get(entry, "name", str, required=True, where=where)
    if "\0" in name:
        raise BlobError(f"{where} ({shorten(name)}) has a NUL in its name")
    dtype = _get(entry, "dtype", str, default="", where=where)
    if dtype and dtype not in DTYPES:
        raise BlobError(f"{where} ({shorten(name)}) has the unknown dtype {shorten(dtype)}")
    binding = Binding(
        name=name,
        dtype=dtype,
        shape=_dims(_get(entry, "shape", list, default=[], where=where), where, minimum=-1),
        is_input=_get(entry, "is_input", bool, required=True, where=where),
        min_shape=_optional_dims(entry, "min_shape", where),
        opt_shape=_optional_dims(entry, "opt_shape", where),
        max_shape=_optional_dims(entry, "max_shape", where),
        dim_order=_optional_dims(entry, "dim_order", where),
        value_of=_get(entry, "value_of", str, default="", where=where),
    )
    if binding.value_of and (binding.is_input or not dtype):
        raise BlobError(f"{where} ({shorten(name)}) has a value_of, but is no output with a dtype")
    _check_ranges(binding, where)
    return binding


def _check_ranges(binding: Binding, where: str) -> None:
    if binding.is_dynamic and not binding.dtype:
        raise BlobError(f"{where} ({shorten(binding.name)}) has a dynamic shape, and no dtype")
    ranges = (binding.min_shape, binding.opt_shape, binding.max_shape)
    if any(ranges) != binding.is_dynamic or (binding.is_dynamic and None in ranges):
        raise BlobError(
            f"{where} ({shorten(binding.name)}) needs min_shape, opt_shape and max_shape exactly "
            "where its shape has a -1"
        )
    if binding.is_dynamic:
        low, opt, high = (shape or () for shape in ranges)
        if not len(low) == len(opt) == len(high) == len(binding.shape) or not all(
            lo <= mid <= hi and size in (-1, lo) and (size == -1 or lo == hi)
            for size, lo, mid, hi in zip(binding.shape, low, opt, high, strict=True)
        ):
            raise BlobError(f"{where} ({shorten(binding.name)}) has an impossible shape range")
    order = binding.dim_order
    if order is not None and sorted(order) != list(range(len(binding.shape))):
        raise BlobError(f"{where} ({shorten(binding.name)}) has a dim_order of another rank")


def _optional_dims(entry: object, key: str, where: str) -> tuple[int, ...] | None:
    value = _get(entry, key, list, default=None, where=where)
    return None if value is None else _dims(value, where, minimum=0)


def _dims(values: Sequence[object], where: str, *, minimum: int) -> tuple[int, ...]:
    if len(values) > _MAX_RANK:
        raise BlobError(f"{where} has {len(values)} dimensions; at most {_MAX_RANK} are allowed")
    dims = []
    for value in values:
        if type(value) is not int or not minimum <= value <= _INT64_MAX:
            raise BlobError(f"{where} has the dimension {shorten(value)}")
        dims.append(value)
    return tuple(dims)


_REQUIRED: Final = object()


def _get(
    entry: object,
    key: str,
    kind: type,
    *,
    default: Any = _REQUIRED,  # noqa: ANN401
    required: bool = False,
    where: str = "engine metadata",
) -> Any:  # noqa: ANN401
    if not isinstance(entry, Mapping):
        raise BlobError(f"{where} is {shorten(entry)}; expected an object")
    if key not in entry:
        if required or default is _REQUIRED:
            raise BlobError(f"{where} has no {key!r}")
        return default
    value = entry[key]
    if type(value) is not kind:
        raise BlobError(f"{where}: {key!r} is {shorten(value)}; expected {kind.__name__}")
    return value


def is_device_id(value: object) -> bool:
    """Return whether a value is a GPU index that ExecuTorch can store."""
    return type(value) is int and 0 <= value <= MAX_DEVICE_ID


def shorten(value: object) -> str:
    """Shorten a value for messages."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
