"""Builds TensorRT-RTX engines of ONNX networks by the library's Python bindings, without a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from crc32c import crc32c

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import Alias, EngineInfo
from trt_et.blob.writer import BlobWriter
from trt_et.conversion.network import Network
from trt_et.conversion.torch_tensorrt_import import tensorrt_log
from trt_et.engines.fingerprint import target_platform
from trt_et.engines.serialize import serialize
from trt_et.engines.tensorrt_rtx import allow_captures, set_targets, targets_with_fp8
from trt_et.errors import BlobError, BuilderError, BuilderUnavailable
from trt_et.requirements import install_command

_BUILDER: Final = "tensorrt_rtx"


def build_rtx_engine(
    blob: bytes, named_data: Mapping[str, bytes], capabilities: Sequence[str] = ()
) -> bytes:
    """Build the TensorRT-RTX engine of one network for GPUs that this machine need not have.

    Args:
        blob: A delegate's bytes, with the builder ``onnx``.
        named_data: The program's named data by key.
        capabilities: The targets, such as ``"8.9"``; empty: TensorRT-RTX's default set.

    Returns:
        The blob with the engine in place of the network.

    Raises:
        BlobError: ``blob`` is no engine blob, or a weight is missing or damaged.
        BuilderError: TensorRT-RTX is not installed, or does not take the network.
        OptionError: TensorRT-RTX does not have the target.
    """
    try:
        import tensorrt_rtx as trt
    except ImportError as error:
        raise BuilderUnavailable(
            f"TensorRT-RTX is not installed: {install_command('tensorrt-rtx')}"
        ) from error
    decoded = decode_blob(blob)
    network = _parsed(trt, bytes(decoded.engine), named_data)
    if not capabilities and _has_fp8(network):
        # By default the library drops older targets, which the blob would still promise.
        capabilities = targets_with_fp8(trt)
    _configure(network, decoded.info)
    set_targets(trt, network.config, tuple(capabilities))
    allow_captures(network)
    info = replace(
        decoded.info,
        builder=_BUILDER,
        library_version=str(trt.__version__),
        compute_capabilities=tuple(capabilities),
        target_platform=target_platform(),
        aliases=network.aliases,
        network=None,
    )
    with BlobWriter(info) as writer:
        serialize(network, "of the network", writer.write)
        return writer.finish()


def _parsed(trt: Any, model: bytes, named_data: Mapping[str, bytes]) -> Network:  # noqa: ANN401
    from trt_et.conversion.onnx.model import references

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # pybind11 needs its own, not super().

        def log(self, severity: Any, message: str) -> None:  # noqa: ANN401
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                tensorrt_log().error(message)

    logger = Logger()
    builder = trt.Builder(logger)
    flag = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    network = builder.create_network(1 << int(flag))
    parser = trt.OnnxParser(network, logger)
    kept: list[Any] = [logger, parser]
    taken = parser.load_model_proto(model)
    for name, key in references(model).items():
        data = _checked(key, named_data)
        view = ctypes.c_char_p(data)
        kept.append(view)
        at = ctypes.cast(view, ctypes.c_void_p).value
        taken = taken and parser.load_initializer(name, at, len(data))
    if not taken or not parser.parse_model_proto():
        raise BuilderError(f"TensorRT-RTX {trt.__version__} {_refusal(parser)}")
    config = builder.create_builder_config()
    return Network(trt, builder, network, config, kept, _aliases(trt, network))


def _checked(key: str, named_data: Mapping[str, bytes]) -> bytes:
    data = named_data.get(key)
    if data is None:
        raise BlobError(f"the program has no weight {key}; export it again")
    if not key.endswith(f"_{crc32c(data):08x}"):
        raise BlobError(f"the weight {key} is damaged; export the program again")
    return data


def _refusal(parser: Any) -> str:  # noqa: ANN401
    if not parser.num_errors:
        return "cannot read the network"
    error = parser.get_error(0)
    node = f"node '{error.node_name()}' ({error.node_operator()})"
    return f"does not take {node}: {' '.join(error.desc().split())}"


def _layers(network: Any) -> list[Any]:  # noqa: ANN401
    return [network.get_layer(index) for index in range(network.num_layers)]


def _aliases(trt: Any, network: Any) -> tuple[Alias, ...]:  # noqa: ANN401
    return tuple(
        Alias(layer.get_output(0).name, layer.get_input(0).name)
        for layer in _layers(network)
        if layer.type == trt.LayerType.KV_CACHE_UPDATE
    )


def _has_fp8(network: Network) -> bool:
    fp8 = network.trt.fp8
    return any(
        layer.num_outputs and layer.get_output(0).dtype == fp8 for layer in _layers(network.network)
    )


def _configure(network: Network, info: EngineInfo) -> None:
    trt, config, options = network.trt, network.config, info.network or {}
    if "workspace_size" in options:
        pool = trt.MemoryPoolType.WORKSPACE
        config.set_memory_pool_limit(pool, options["workspace_size"])
    if "optimization_level" in options:
        config.builder_optimization_level = options["optimization_level"]
    if options.get("weight_streaming"):
        config.set_flag(trt.BuilderFlag.WEIGHT_STREAMING)
    ranges = {
        binding.name: (binding.min_shape, binding.opt_shape, binding.max_shape)
        for binding in info.inputs
        if binding.is_dynamic
    }
    for shapes in options.get("profiles") or ([ranges] if ranges else []):
        profile = network.builder.create_optimization_profile()
        for name, (low, best, high) in shapes.items():
            profile.set_shape(name, low, best, high)
        config.add_optimization_profile(profile)
