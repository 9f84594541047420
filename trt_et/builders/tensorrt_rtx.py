"""The TensorRT-RTX builder: real engines, built without a GPU."""

from __future__ import annotations

from typing import Any

from trt_et.blob.model import EngineInfo
from trt_et.blob.writer import BlobWriter
from trt_et.builders.base import BuildRequest
from trt_et.builders.in_place_fallback import build_with_in_place_fallback
from trt_et.builders.serialize import build_network, serialize
from trt_et.cache.fingerprint import fingerprint_of, has_foreign_converters, target_platform
from trt_et.conversion.network import Network
from trt_et.errors import OptionError
from trt_et.ops.quantize import FP8_CAPABILITY, is_fp8

__all__ = ["TensorRTRTXBuilder"]


class TensorRTRTXBuilder:
    """Builds TensorRT-RTX engines.

    Kernels are chosen on the target GPU when the engine is loaded, so an engine fits a set of
    compute capabilities and depends on no device index: ``device_id`` is only where to load it.
    """

    name = "tensorrt_rtx"

    def fingerprint(self) -> str:
        """See :class:`trt_et.builders.EngineBuilder`."""
        return "" if has_foreign_converters() else fingerprint_of(tensorrt=True)

    def build(self, request: BuildRequest) -> bytes:
        """See :meth:`trt_et.builders.EngineBuilder.build`."""
        return build_with_in_place_fallback(self._build, request)

    def _build(self, request: BuildRequest) -> bytes:
        network = build_network(request, self.name)
        capabilities = request.options.compute_capabilities
        if not capabilities and any(map(is_fp8, request.lowered.program.graph.nodes)):
            # Left to itself the library drops what is older, and the blob would promise it.
            capabilities = _targets_with_fp8(network)
        _set_targets(network, capabilities)
        info = EngineInfo(
            bindings=request.lowered.bindings,
            device_id=request.device_id,
            builder=self.name,
            library_version=str(network.trt.__version__),
            compute_capabilities=capabilities,
            hardware_compatible=True,
            target_platform=target_platform(),
            aliases=network.aliases,
        )
        with BlobWriter(info) as writer:
            serialize(network, request.partition, writer.write, request.monitor)
            del network  # Its memory goes before the blob comes.
            return writer.finish()


def _targets_with_fp8(network: Network) -> tuple[str, ...]:
    known = [(int(n[2:-1]), int(n[-1])) for n in dir(_kinds(network)) if n.startswith("SM")]
    new_enough = sorted(target for target in known if target >= FP8_CAPABILITY)
    return tuple(f"{major}.{minor}" for major, minor in new_enough)


def _kinds(network: Network) -> Any:  # noqa: ANN401
    return network.trt.ComputeCapability


def _set_targets(network: Network, capabilities: tuple[str, ...]) -> None:
    if not capabilities:
        return
    kinds = _kinds(network)
    network.config.num_compute_capabilities = len(capabilities)
    for index, capability in enumerate(capabilities):
        name = "SM" + capability.replace(".", "")
        kind = getattr(kinds, name, None)
        if kind is None:
            known = sorted(n for n in dir(kinds) if n.startswith("SM"))
            raise OptionError(
                f"TensorRT-RTX {network.trt.__version__} has no target {capability}; it has "
                + ", ".join(f"{n[2:-1]}.{n[-1]}" for n in known)
            )
        network.config.set_compute_capability(kind, index)
