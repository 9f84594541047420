"""The TensorRT builder: engines for the GPU at hand."""

from __future__ import annotations

import torch

from trt_et.blob.model import EngineInfo
from trt_et.blob.writer import BlobWriter
from trt_et.builders.base import BuildRequest
from trt_et.builders.in_place_fallback import build_with_in_place_fallback
from trt_et.builders.serialize import build_network, serialize
from trt_et.cache.fingerprint import fingerprint_of, has_foreign_converters, target_platform
from trt_et.cache.timing_cache import TimingCache
from trt_et.errors import BuilderUnavailable, OptionError

__all__ = ["TensorRTBuilder"]


class TensorRTBuilder:
    """Builds TensorRT engines, which TensorRT tunes on the very GPU that they are for."""

    name = "tensorrt"

    def fingerprint(self) -> str:
        """See :class:`trt_et.builders.EngineBuilder`; empty where no GPU is at hand.

        TensorRT tunes an engine on its GPU, so each of them is named.
        """
        if has_foreign_converters() or not torch.cuda.is_available():
            return ""
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        names = [f"cuda:{i} {gpu.name} {gpu.major}.{gpu.minor}" for i, gpu in enumerate(gpus)]
        return fingerprint_of(*names, f"cuda {torch.version.cuda}", tensorrt=True)

    def build(self, request: BuildRequest) -> bytes:
        """See :meth:`trt_et.builders.EngineBuilder.build`."""
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if request.device_id >= count:
            raise BuilderUnavailable(
                f"partition {request.partition} is for cuda:{request.device_id}, but this machine "
                f"has {count} GPU(s) that torch can use; TensorRT builds an engine on the GPU that "
                "it is for. Choose another device=, or builder='tensorrt_rtx', which needs none"
            )
        properties = torch.cuda.get_device_properties(request.device_id)
        own = f"{properties.major}.{properties.minor}"
        wanted = request.options.compute_capabilities
        if wanted and wanted != (own,):
            raise OptionError(
                f"TensorRT builds for the GPU at hand ({own}), not for {', '.join(wanted)}; leave "
                "compute_capabilities out, or use builder='tensorrt_rtx'"
            )
        return build_with_in_place_fallback(lambda asked: self._build(asked, own), request)

    def _build(self, request: BuildRequest, own: str) -> bytes:
        with torch.cuda.device(request.device_id):
            network = build_network(request, self.name)
            info = EngineInfo(
                bindings=request.lowered.bindings,
                device_id=request.device_id,
                builder=self.name,
                library_version=str(network.trt.__version__),
                compute_capabilities=(own,),
                gpu_name=torch.cuda.get_device_properties(request.device_id).name,
                hardware_compatible=request.options.hardware_compatible,
                target_platform=target_platform(),
                aliases=network.aliases,
            )
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
                del network  # Its memory goes before the blob comes.
                return writer.finish()


def _timings(request: BuildRequest, info: EngineInfo) -> TimingCache:
    """Our timing cache, unless the caller named Torch-TensorRT's own."""
    folder = None if "timing_cache_path" in request.options.settings else request.timings
    facts = (info.gpu_name, *info.compute_capabilities, info.library_version, info.target_platform)
    return TimingCache(folder, "; ".join(facts))
