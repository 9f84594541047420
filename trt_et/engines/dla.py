"""Builds TensorRT engines for DLA, the deep learning accelerator of Jetson Orin."""

from __future__ import annotations

from trt_et.conversion.network import Network
from trt_et.errors import OptionError
from trt_et.options import BuildOptions

__all__ = ["choose_dla"]


def choose_dla(network: Network, options: BuildOptions, device_id: int) -> None:
    """Make DLA the default device of a network's layers if ``options.dla_core`` is set.

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
    for pool, size in (
        (kinds.DLA_MANAGED_SRAM, settings.dla_sram_size),
        (kinds.DLA_LOCAL_DRAM, settings.dla_local_dram_size),
        (kinds.DLA_GLOBAL_DRAM, settings.dla_global_dram_size),
    ):
        network.config.set_memory_pool_limit(pool, size)
    network.config.default_device_type = network.trt.DeviceType.DLA
    network.config.DLA_core = options.dla_core
    if options.dla_gpu_fallback:
        network.config.set_flag(network.trt.BuilderFlag.GPU_FALLBACK)
