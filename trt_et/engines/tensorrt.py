"""The TensorRT builder: engines for the GPU at hand."""

from __future__ import annotations

from typing import Any

import torch

from trt_et.blob.model import EngineInfo
from trt_et.blob.writer import BlobWriter
from trt_et.conversion.network import Network
from trt_et.engines.base import BuildRequest
from trt_et.engines.dla import choose_dla
from trt_et.engines.fingerprint import fingerprint_of, has_foreign_converters, target_platform
from trt_et.engines.serialize import build_engine, serialize
from trt_et.engines.timing_cache import TimingCache
from trt_et.errors import BuilderUnavailable, OptionError
from trt_et.options import BuildOptions

__all__ = ["TensorRTBuilder"]


class TensorRTBuilder:
    """Builds TensorRT engines; TensorRT tunes an engine on the GPU that will run it."""

    name = "tensorrt"

    def fingerprint(self) -> str:
        """See ``trt_et.engines.EngineBuilder``; empty on a machine without a GPU.

        TensorRT tunes an engine on its GPU, so the fingerprint names each GPU.
        """
        if has_foreign_converters() or not torch.cuda.is_available():
            return ""
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        names = [f"cuda:{i} {gpu.name} {gpu.major}.{gpu.minor}" for i, gpu in enumerate(gpus)]
        return fingerprint_of(*names, f"cuda {torch.version.cuda}", tensorrt=True)

    def check_options(self, options: BuildOptions) -> None:
        """See ``trt_et.engines.EngineBuilder``."""
        if options.dla_gpu_fallback and options.dla_core is None:
            raise OptionError("dla_gpu_fallback needs a dla_core, such as dla_core=0")
        if torch.cuda.is_available():
            gpus = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
            if len(gpus) == 1:
                _check_capability(options, "{}.{}".format(*gpus.pop()))

    def build(self, request: BuildRequest) -> bytes:
        """See ``trt_et.engines.EngineBuilder.build``."""
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if request.device_id >= count:
            raise BuilderUnavailable(
                f"partition {request.partition} is for cuda:{request.device_id}, but this machine "
                f"has {count} GPU(s) that torch can use; TensorRT builds an engine on the GPU that "
                "it is for. Choose another device=, or builder='tensorrt_rtx', which needs none"
            )
        properties = torch.cuda.get_device_properties(request.device_id)
        own = f"{properties.major}.{properties.minor}"
        _check_capability(request.options, own)
        with torch.cuda.device(request.device_id):
            return build_engine(
                request, self.name, lambda network: self._build(request, network, properties)
            )

    def _build(self, request: BuildRequest, network: Network, gpu: Any) -> bytes:  # noqa: ANN401
        info = EngineInfo(
            bindings=request.lowered.bindings,
            device_id=request.device_id,
            builder=self.name,
            library_version=str(network.trt.__version__),
            compute_capabilities=(f"{gpu.major}.{gpu.minor}",),
            gpu_name=gpu.name,
            hardware_compatible=request.options.hardware_compatible,
            target_platform=target_platform(),
            precision=request.options.precision or "",
            aliases=network.aliases,
        )
        choose_dla(network, request.options, request.device_id)
        timings = _timings(request, info)
        timings.load(network.config)
        with BlobWriter(info) as writer:
            serialize(
                network,
                request.partition,
                writer.write,
                request.monitor,
                lambda: torch.cuda.device(request.device_id),
            )
            timings.save(network.config)
            network.free()  # Before the blob takes memory.
            return writer.finish()


def _check_capability(options: BuildOptions, own: str) -> None:
    wanted = options.compute_capabilities
    if wanted and wanted != (own,):
        raise OptionError(
            f"TensorRT builds for the GPU at hand ({own}), not for {', '.join(wanted)}; leave "
            "compute_capabilities out, or use builder='tensorrt_rtx'"
        )


def _timings(request: BuildRequest, info: EngineInfo) -> TimingCache:
    """Return the timing cache of the engine's GPU and library."""
    facts = (info.gpu_name, *info.compute_capabilities, info.library_version, info.target_platform)
    return TimingCache(request.timings, "; ".join(facts))
