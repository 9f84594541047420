"""Convert the facts of an engine to JSON and back (``docs/blob.md``, "Metadata")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trt_et.blob.model import DTYPES, MAX_DEVICE_ID, MAX_ENTRIES, Alias, Binding, EngineInfo
from trt_et.blob.network import check_network
from trt_et.errors import BlobError

_SHAPES: Final = ("min_shape", "opt_shape", "max_shape", "dim_order")
_TEXTS: Final = (
    *("builder", "library_version", "gpu_name", "target_platform", "precision", "sha256"),
    *("engine_key", "serialized_metadata", "parser"),
)
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
        "parser": info.parser,
        "compute_capabilities": list(info.compute_capabilities),
        "gpu_name": info.gpu_name,
        "precision": info.precision,
        "sha256": info.sha256,
        "engine_key": info.engine_key,
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
    for key in _SHAPES:
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
    for key in ("io_bindings", "aliased_io"):
        if (count := len(_get(document, key, list, default=[]))) > MAX_ENTRIES:
            raise BlobError(f"an engine blob has {count} {key}; at most {MAX_ENTRIES} allowed")
    bindings = tuple(
        _binding_from(entry, index)
        for index, entry in enumerate(_get(document, "io_bindings", list))
    )
    by_name = {binding.name: binding for binding in bindings}
    if len(by_name) != len(bindings):
        raise BlobError("two bindings of the engine have the same name")
    aliases = tuple(
        Alias(
            _get(entry, "output", str),
            _get(entry, "input", str),
            _get(entry, "kind", str, default="kv_cache_update"),
        )
        for entry in _get(document, "aliased_io", list, default=[])
    )
    for alias in aliases:
        source, sink = by_name.get(alias.input), by_name.get(alias.output)
        if source is None or sink is None or not source.is_input or sink.is_input:
            raise BlobError(f"alias {alias.output!r} -> {alias.input!r} names no output and input")
    capabilities = _get(document, "compute_capabilities", list, default=[])
    if not all(isinstance(item, str) for item in capabilities):
        raise BlobError("compute_capabilities of an engine blob must be strings")
    texts = {key: _get(document, key, str, default="") for key in _TEXTS}
    if texts["sha256"] and not _SHA256.fullmatch(texts["sha256"]):
        raise BlobError(
            f"sha256 of an engine blob is {shorten(texts['sha256'])}: not 64 hex digits"
        )
    network = _get(document, "network", dict, default=None)
    if network is not None:
        if texts["builder"] != "onnx":
            raise BlobError(
                f"engine metadata has a network, but the builder {shorten(texts['builder'])}"
            )
        check_network(network, bindings)
    device_id = document.get("device_id")
    return EngineInfo(
        bindings=bindings,
        device_id=device_id if is_device_id(device_id) else None,
        compute_capabilities=tuple(capabilities),
        hardware_compatible=_get(document, "hardware_compatible", bool, default=False),
        aliases=aliases,
        network=network,
        **texts,
    )


def _binding_from(entry: object, index: int) -> Binding:
    where = f"binding {index}"
    name = _get(entry, "name", str, where=where)
    what = f"{where} ({shorten(name)})"
    if "\0" in name:
        raise BlobError(f"{what} has a NUL in its name")
    dtype = _get(entry, "dtype", str, default="", where=where)
    if dtype and dtype not in DTYPES:
        raise BlobError(f"{what} has the unknown dtype {shorten(dtype)}")
    given = {key: _get(entry, key, list, default=None, where=where) for key in _SHAPES}
    binding = Binding(
        name=name,
        dtype=dtype,
        shape=_dims(_get(entry, "shape", list, default=[], where=where), where, minimum=-1),
        is_input=_get(entry, "is_input", bool, where=where),
        value_of=_get(entry, "value_of", str, default="", where=where),
        **{k: v if v is None else _dims(v, where, minimum=0) for k, v in given.items()},
    )
    if binding.value_of and (binding.is_input or not dtype):
        raise BlobError(f"{what} has a value_of, but is no output with a dtype")
    _check_ranges(binding, what)
    return binding


def _check_ranges(binding: Binding, what: str) -> None:
    if binding.is_dynamic and not binding.dtype:
        raise BlobError(f"{what} has a dynamic shape, and no dtype")
    ranges = (binding.min_shape, binding.opt_shape, binding.max_shape)
    if any(ranges) != binding.is_dynamic or (binding.is_dynamic and None in ranges):
        raise BlobError(
            f"{what} needs min_shape, opt_shape and max_shape exactly where its shape has a -1"
        )
    if binding.is_dynamic:
        low, opt, high = (shape or () for shape in ranges)
        if not len(low) == len(opt) == len(high) == len(binding.shape) or not all(
            lo <= mid <= hi and size in (-1, lo) and (size == -1 or lo == hi)
            for size, lo, mid, hi in zip(binding.shape, low, opt, high, strict=True)
        ):
            raise BlobError(f"{what} has an impossible shape range")
    order = binding.dim_order
    if order is not None and sorted(order) != list(range(len(binding.shape))):
        raise BlobError(f"{what} has a dim_order of another rank")


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
    where: str = "engine metadata",
) -> Any:  # noqa: ANN401
    if not isinstance(entry, Mapping):
        raise BlobError(f"{where} is {shorten(entry)}; expected an object")
    if key not in entry:
        if default is _REQUIRED:
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
