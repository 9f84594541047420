"""Builds TensorRT-RTX engines of ONNX networks by the library's own parser, without a GPU.

The builder needs no Torch-TensorRT (the extra ``rtx-light``). ``trt-et build`` builds the networks
of a program that ``builder="onnx"`` has exported.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final

import numpy
from crc32c import crc32c

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import Alias, Binding
from trt_et.conversion.installed import rtx_version
from trt_et.conversion.network import Network
from trt_et.conversion.torch_tensorrt_import import logged_errors, tensorrt_log
from trt_et.engines.base import BuildRequest
from trt_et.engines.fingerprint import fingerprint_of
from trt_et.engines.onnx import make_onnx_model, network_options, onnx_support_check
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder, build_blob
from trt_et.errors import BlobError, BuilderError, BuilderUnavailable, OptionError
from trt_et.graph.fragment import SupportCheck
from trt_et.graph.tensor_bytes import bytes_of
from trt_et.options import BuildOptions
from trt_et.requirements import install_command

_PARSER: Final = "onnx"  # See ``EngineInfo.parser``.


class RtxParserBuilder(TensorRTRTXBuilder):
    """Builds TensorRT-RTX engines without Torch-TensorRT: the library parses ONNX models.

    The models have the rewrites for this library as well, unlike those of ``builder="onnx"``.
    """

    parser = _PARSER

    @property
    def made_by(self) -> str:
        """See ``trt_et.engines.EngineBuilder``."""
        return f"the ONNX parser of TensorRT-RTX {rtx_version()}"

    def fingerprint(self) -> str:
        """See ``trt_et.engines.EngineBuilder``."""
        packages = [f"{name}={version(name)}" for name in ("onnx", "onnxscript", "onnx-ir")]
        return fingerprint_of("ONNX parser", *packages, tensorrt=True)

    def check_options(self, options: BuildOptions) -> None:
        """See ``trt_et.engines.EngineBuilder``."""
        super().check_options(options)
        for name in options.torch_tensorrt_settings.keys() - {"disable_tf32"}:
            raise OptionError(
                f"setting {name!r} needs Torch-TensorRT, which is not installed; leave it out, or "
                f"run: {install_command('torch-tensorrt-rtx')}"
            )

    def make_support_check(self, options: BuildOptions) -> SupportCheck:
        """See ``trt_et.engines.EngineBuilder``."""
        return onnx_support_check(self.name)

    def fill(self, request: BuildRequest) -> Network:
        """See ``TensorRTRTXBuilder``."""
        model = make_onnx_model(request, self.name)
        weights = {key: bytes_of(tensor) for key, tensor in model.weights.items()}
        network = _parsed(model.to_bytes(), weights)
        network.interpreter.append(model)  # It owns the weights' memory.
        _configure(network, request.program.inputs, network_options(request, []))
        if request.options.torch_tensorrt_settings.get("disable_tf32"):
            network.config.clear_flag(network.trt.BuilderFlag.TF32)
        return network


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
    from trt_et.conversion.onnx.model import references

    decoded = decode_blob(blob)
    model, info = bytes(decoded.engine), decoded.info
    keys = references(model).values()
    network = _parsed(model, {key: _checked(key, named_data) for key in keys})
    _configure(network, info.inputs, info.network or {})
    info = replace(info, parser=_PARSER, compute_capabilities=tuple(capabilities), network=None)
    return build_blob(network, info, _has_fp8(network), "of the network")


def _parsed(model: bytes, weights: Mapping[str, bytes | memoryview]) -> Network:
    """Let TensorRT-RTX parse a serialized model, whose large weights are given by their keys."""
    from trt_et.conversion.onnx.model import references

    try:
        import tensorrt_rtx as trt
    except ImportError as error:
        raise BuilderUnavailable(
            f"TensorRT-RTX is not installed: {install_command('tensorrt-rtx')}"
        ) from error

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # pybind11 needs its own, not super().

        def log(self, severity: Any, message: str) -> None:  # noqa: ANN401
            is_error = severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR)
            tensorrt_log().log(logging.ERROR if is_error else logging.DEBUG, "%s", message)

    logger = Logger()
    builder = trt.Builder(logger)
    flag = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    network = builder.create_network(1 << int(flag))
    parser = trt.OnnxParser(network, logger)
    kept: list[Any] = [logger, parser]
    with logged_errors():  # The parser keeps its own.
        taken = parser.load_model_proto(model)
        for name, key in references(model).items():
            data = numpy.frombuffer(weights[key], numpy.uint8)
            kept.append(data)
            taken = taken and parser.load_initializer(name, data.ctypes.data, data.size)
        taken = taken and parser.parse_model_proto()
    if not taken:
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


def _configure(network: Network, inputs: Sequence[Binding], options: Mapping[str, Any]) -> None:
    trt, config = network.trt, network.config
    if "workspace_size" in options:
        pool = trt.MemoryPoolType.WORKSPACE
        config.set_memory_pool_limit(pool, options["workspace_size"])
    if "optimization_level" in options:
        config.builder_optimization_level = options["optimization_level"]
    if options.get("weight_streaming"):
        config.set_flag(trt.BuilderFlag.WEIGHT_STREAMING)
    ranges = {
        binding.name: (binding.min_shape, binding.opt_shape, binding.max_shape)
        for binding in inputs
        if binding.is_dynamic
    }
    for shapes in options.get("profiles") or ([ranges] if ranges else []):
        profile = network.builder.create_optimization_profile()
        for name, (low, best, high) in shapes.items():
            profile.set_shape(name, low, best, high)
        config.add_optimization_profile(profile)
