"""The TensorRT builder: engines for the GPU at hand."""

from __future__ import annotations

from typing import Any

import torch

from trt_et.blob.model import EngineInfo
from trt_et.blob.writer import BlobWriter
from trt_et.conversion.network import Network
from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.engines.fingerprint import fingerprint_of, has_foreign_converters, target_platform
from trt_et.engines.serialize import build_engine, build_network, serialize
from trt_et.engines.timing_cache import TimingCache
from trt_et.errors import BuilderUnavailable, OptionError
from trt_et.options import BuildOptions, check_settings_are_read


class TensorRTBuilder(EngineBuilder):
    """Builds TensorRT engines; TensorRT tunes an engine on the GPU that will run it."""

    name = "tensorrt"
    verified = True

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
        check_settings_are_read(options, TensorRTBuilder.name)
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
        gpu = torch.cuda.get_device_properties(request.device_id)
        _check_capability(request.options, f"{gpu.major}.{gpu.minor}")
        with torch.cuda.device(request.device_id):
            return build_engine(
                request, build_network, lambda network: self._build(request, network, gpu)
            )

    def _build(self, request: BuildRequest, network: Network, gpu: Any) -> bytes:  # noqa: ANN401
        info = EngineInfo(
            bindings=request.program.bindings,
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
        keep_lean_runtime(network, request.options)
        capability, version = info.compute_capabilities[0], info.library_version
        gpu_and_library = (gpu.name, capability, version, info.target_platform)
        timings = TimingCache(request.timings, "; ".join(gpu_and_library))
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


def keep_lean_runtime(network: Network, options: BuildOptions) -> None:
    """Keep TensorRT's lean runtime in a version-compatible engine; newer releases run it by that.

    Torch-TensorRT leaves it out, and nothing here loads it from elsewhere.
    """
    if options.torch_tensorrt_settings.get("version_compatible"):
        network.config.clear_flag(network.trt.BuilderFlag.EXCLUDE_LEAN_RUNTIME)


def choose_dla(network: Network, options: BuildOptions, device_id: int) -> None:
    """Build for DLA, the accelerator of Jetson Orin, if ``options.dla_core`` is set.

    Torch-TensorRT sets the core, but neither the default device nor the fallback to the GPU.

    Args:
        network: The filled network, with its builder configuration.
        options: The engine's options.
        device_id: Index of the GPU, which must be the current one; for messages.

    Raises:
        OptionError: TensorRT finds no such core.
    """
    if options.dla_core is None:
        return
    # Setting a core that does not exist changes nothing and raises nothing.
    cores = getattr(network.builder, "num_DLA_cores", 0)
    if options.dla_core >= cores:
        version = str(network.trt.__version__)
        without = version.startswith(("11.0.", "11.1.", "11.2.", "11.3."))
        raise OptionError(
            f"dla_core is {options.dla_core}, but TensorRT {version} finds {cores} DLA core(s) on "
            f"cuda:{device_id}"
            + (" (TensorRT 11.0 to 11.3 have no DLA)" if without else "")
            + "; leave dla_core out to build for the GPU"
        )
    kinds, settings = network.trt.MemoryPoolType, network.interpreter.compilation_settings
    set_limit = network.config.set_memory_pool_limit
    set_limit(kinds.DLA_MANAGED_SRAM, settings.dla_sram_size)
    set_limit(kinds.DLA_LOCAL_DRAM, settings.dla_local_dram_size)
    set_limit(kinds.DLA_GLOBAL_DRAM, settings.dla_global_dram_size)
    network.config.default_device_type = network.trt.DeviceType.DLA
    network.config.DLA_core = options.dla_core
    if options.dla_gpu_fallback:
        network.config.set_flag(network.trt.BuilderFlag.GPU_FALLBACK)
