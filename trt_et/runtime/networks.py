"""Build the engines of a program's ONNX networks on this machine."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from trt_et.blob.codec import decode_blob, encode_blob
from trt_et.blob.model import BACKEND_ID, EngineInfo
from trt_et.errors import BlobError, PluginError
from trt_et.runtime import last_error, load_plugin, plugin_path
from trt_et.runtime.explain import wrong_file

if TYPE_CHECKING:
    from executorch.exir._serialize._named_data_store import NamedDataStoreOutput

_NETWORK: Final = "onnx"
_Data = Callable[[str], bytes]
_Find = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
)
_Take = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
)


@dataclass(frozen=True)
class BuiltEngine:
    """An engine that was built here.

    Attributes:
        method: The first method that uses it.
        blob: The delegate's new bytes.
        info: Their metadata.
    """

    method: str
    blob: bytes
    info: EngineInfo


def build_engine(blob: bytes, named_data: Mapping[str, bytes]) -> bytes:
    """Build the engine of one network, or take it from the folder of built engines.

    Args:
        blob: A delegate's bytes, with the builder ``onnx``.
        named_data: The program's named data by key.

    Returns:
        The blob with the engine in place of the network.

    Raises:
        BlobError: ``blob`` is no engine blob.
        PluginError: The engine cannot be built here; the message gives the reason.
    """
    info = decode_blob(blob).info
    kept: list[object] = []  # Memory that the plugin reads must live until it returns.
    built: list[bytes] = []

    def find(_: object, key: bytes, at: Any, size: Any) -> int:  # noqa: ANN401
        data = named_data.get(key.decode())
        if data is None:
            return -1
        view = ctypes.c_char_p(data)
        kept.append(view)
        at[0], size[0] = ctypes.cast(view, ctypes.c_void_p).value, len(data)
        return 0

    def take(_: object, facts: bytes, at: int, size: int) -> int:
        engine = (ctypes.c_char * size).from_address(at)
        built.append(encode_blob(memoryview(engine), _info_of(info, json.loads(facts))))
        return 0

    load_plugin()
    # With the interpreter's lock, as ExecuTorch's bindings load: handlers of signals run meanwhile.
    function = ctypes.PyDLL(str(plugin_path())).trt_et_build_engine
    if function(blob, ctypes.c_size_t(len(blob)), _Find(find), None, _Take(take)) != 0:
        raise PluginError(f"the engine cannot be built here: {last_error()}")
    return built[0]


def build_program(
    pte: bytes, build: Callable[[bytes, Mapping[str, bytes]], bytes] = build_engine
) -> tuple[bytes, list[BuiltEngine]]:
    """Replace the ONNX networks of a program by engines.

    Args:
        pte: The program.
        build: Builds one engine: ``build_engine``, for this machine, or
            ``trt_et.engines.rtx_network.build_rtx_engine``, for any GPU of TensorRT-RTX.

    Returns:
        The program with engines, and these. Weights that only networks used are removed.

    Raises:
        BlobError: It is no program, or it has no networks.
        PluginError: An engine cannot be built here.
        BuilderError: ``build_rtx_engine`` cannot build one.
    """
    from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

    try:
        file = deserialize_pte_binary(pte)
    except Exception as error:  # ExecuTorch's parser raises errors of any class.
        raise BlobError(wrong_file(pte) or f"the program cannot be read: {error}") from error
    named = file.named_data
    data = (
        {key: named.buffers[entry.buffer_index] for key, entry in named.pte_data.items()}
        if named
        else {}
    )
    store = file.program.backend_delegate_data
    engines: dict[int, BuiltEngine] = {}
    unused: set[str] = set()
    used: set[str] = set()
    for plan in file.program.execution_plan:
        for delegate in plan.delegates:
            index = delegate.processed.index
            if delegate.id != BACKEND_ID or index in engines:
                continue
            info = decode_blob(store[index].data).info
            keys = (info.network or {}).get("weights", ())
            if info.builder != _NETWORK:
                used.update(keys)
                continue
            if info.engine_key:
                raise BlobError(
                    f"the network of method {plan.name!r} is in a .ptd file; export the program "
                    "without external_engines"
                )
            blob = build(bytes(store[index].data), data)
            store[index].data = blob
            engines[index] = BuiltEngine(plan.name, blob, decode_blob(blob, verify=False).info)
            unused.update(keys)
    if not engines:
        raise BlobError(
            "the program has no ONNX networks; export it with builder='onnx' (on the command line: "
            "--builder onnx)"
        )
    if named:
        file.named_data = _without(named, unused - used)
    return bytes(serialize_pte_binary(file, extract_delegate_segments=True)), list(engines.values())


def _info_of(info: EngineInfo, facts: Mapping[str, str]) -> EngineInfo:
    """Return the metadata of an engine, as the builder of its library writes it."""
    rtx = facts["builder"] == "tensorrt_rtx"
    return replace(
        info,
        builder=facts["builder"],
        library_version=facts["library_version"],
        parser="onnx",
        compute_capabilities=() if rtx else (facts["compute_capability"],),
        gpu_name="" if rtx else facts["gpu_name"],
        hardware_compatible=rtx,
        target_platform=facts["target_platform"],
        network=None,
    )


def _without(named: NamedDataStoreOutput, unused: set[str]) -> NamedDataStoreOutput:
    entries = {key: entry for key, entry in named.pte_data.items() if key not in unused}
    kept = sorted({entry.buffer_index for entry in entries.values()})
    places = {index: place for place, index in enumerate(kept)}
    return replace(
        named,
        buffers=[named.buffers[index] for index in kept],
        pte_data={
            key: replace(entry, buffer_index=places[entry.buffer_index])
            for key, entry in entries.items()
        },
    )
