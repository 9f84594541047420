"""The TensorRT-RTX builder: real engines, built without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload

from trt_et.blob.model import EngineInfo
from trt_et.blob.writer import BlobWriter
from trt_et.conversion.network import Network
from trt_et.conversion.operators.products import QUANTIZED_CONVOLUTION
from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.engines.fingerprint import fingerprint_of, has_foreign_converters, target_platform
from trt_et.engines.lost_bias import keeps_biases
from trt_et.engines.progress import BuildMonitor
from trt_et.engines.serialize import build_engine, build_network, serialize
from trt_et.errors import OptionError
from trt_et.ops.quantize import FP8_CAPABILITY, is_fp8
from trt_et.options import BuildOptions, check_settings_are_read


class TensorRTRTXBuilder(EngineBuilder):
    """Builds TensorRT-RTX engines.

    The library chooses kernels on the target GPU when it loads an engine. So an engine fits a set
    of compute capabilities, and ``device_id`` only chooses the GPU to load it on.
    """

    name = "tensorrt_rtx"
    verified = True
    parser = ""  # See ``EngineInfo.parser``.

    @property
    def without_int8(self) -> frozenset[OpOverload]:
        """See ``trt_et.engines.EngineBuilder``."""
        operators = {torch.ops.aten.convolution.default}
        return frozenset() if QUANTIZED_CONVOLUTION.is_fixed() else frozenset(operators)

    def fingerprint(self) -> str:
        """See ``trt_et.engines.EngineBuilder``."""
        return "" if has_foreign_converters() else fingerprint_of(tensorrt=True)

    def check_options(self, options: BuildOptions) -> None:
        """See ``trt_et.engines.EngineBuilder``."""
        if options.dla_core is not None or options.dla_gpu_fallback:
            raise OptionError("TensorRT-RTX has no DLA; leave dla_core and dla_gpu_fallback out")
        check_settings_are_read(options, TensorRTRTXBuilder.name)
        if options.refittable and not torch.cuda.is_available():
            raise OptionError(
                "refittable=True: TensorRT-RTX builds no engine for its refitter without a GPU "
                "(1.6.1 and 1.7.1 end with a CUDA error); leave it out"
            )
        if options.compute_capabilities:
            import tensorrt_rtx

            _check_targets(tensorrt_rtx, options.compute_capabilities)

    def build(self, request: BuildRequest) -> bytes:
        """See ``trt_et.engines.EngineBuilder.build``."""
        info = EngineInfo(
            bindings=request.program.bindings,
            device_id=request.device_id,
            parser=self.parser,
            compute_capabilities=request.options.compute_capabilities,
            precision=request.options.precision or "",
        )
        has_fp8 = any(map(is_fp8, request.program.exported.graph.nodes))
        return build_engine(
            request,
            self.fill,
            lambda network: build_blob(network, info, has_fp8, request.partition, request.monitor),
        )

    def fill(self, request: BuildRequest) -> Network:
        """Fill a network with a request's partition; it may be written in place."""
        return build_network(request, self.name)


def build_blob(
    network: Network,
    info: EngineInfo,
    has_fp8: bool,
    partition: str,
    monitor: BuildMonitor | None = None,
) -> bytes:
    """Build the engine of a network, and return its blob.

    Args:
        network: The network; it is freed.
        info: The blob's facts, except those of this library. ``compute_capabilities`` are the
            targets; empty: the library's default set.
        has_fp8: Whether the network has 8-bit floats.
        partition: See ``serialize``.
        monitor: See ``serialize``.
    """
    capabilities = info.compute_capabilities
    if not capabilities and has_fp8:
        # By default the library drops older targets, which the blob would still promise.
        capabilities = targets_with_fp8(network.trt)
    set_targets(network.trt, network.config, capabilities)
    allow_captures(network)
    info = replace(
        info,
        builder=TensorRTRTXBuilder.name,
        library_version=str(network.trt.__version__),
        compute_capabilities=capabilities,
        hardware_compatible=True,
        target_platform=target_platform(),
        aliases=network.aliases,
    )
    while True:
        with BlobWriter(info) as writer:
            serialize(network, partition, writer.write, monitor)
            if keeps_biases(network, writer.engine(), partition):
                network.free()  # Before the blob takes memory.
                return writer.finish()


def allow_captures(network: Network) -> None:
    """Let the runtime capture runs of an engine of static shapes into CUDA graphs.

    TensorRT-RTX reports for an engine without this flag that its runs cannot be captured
    (``IExecutionContext::isStreamCapturable``). Runs of dynamic shapes crashed in TensorRT-RTX 1.6
    with it, and the library records graphs of these itself. The flag excludes weight streaming,
    which no graph can hold.
    """
    net, config, flags = network.network, network.config, network.trt.BuilderFlag
    is_dynamic = any(-1 in net.get_input(index).shape for index in range(net.num_inputs))
    if not is_dynamic and not config.get_flag(flags.WEIGHT_STREAMING):
        config.set_flag(flags.REQUIRE_USER_ALLOCATION)


def targets_with_fp8(trt: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the targets of TensorRT-RTX that have 8-bit floats."""
    known = sorted(tuple(map(int, target.split("."))) for target in _targets(trt))
    return tuple(f"{major}.{minor}" for major, minor in known if (major, minor) >= FP8_CAPABILITY)


def set_targets(trt: Any, config: Any, capabilities: tuple[str, ...]) -> None:  # noqa: ANN401
    """Set the targets of an engine; none: the library's default set.

    Raises:
        OptionError: The installed TensorRT-RTX does not have one of them.
    """
    if not capabilities:
        return
    _check_targets(trt, capabilities)
    config.num_compute_capabilities = len(capabilities)
    for index, capability in enumerate(capabilities):
        config.set_compute_capability(_targets(trt)[capability], index)


def _check_targets(trt: Any, capabilities: tuple[str, ...]) -> None:  # noqa: ANN401
    known = _targets(trt)
    for capability in capabilities:
        if capability not in known:
            raise OptionError(
                f"TensorRT-RTX {trt.__version__} has no target {capability}; it has "
                + ", ".join(known)
            )


def _targets(trt: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return TensorRT-RTX's constants by compute capability, such as ``"8.9"``."""
    names = sorted(name for name in dir(trt.ComputeCapability) if name.startswith("SM"))
    return {f"{name[2:-1]}.{name[-1]}": getattr(trt.ComputeCapability, name) for name in names}
