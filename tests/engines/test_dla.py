"""Engines for DLA: what TensorRT's configuration is told, on a substitute of a Jetson's builder."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from tests.support.lowering import request
from tests.support.models import make
from trt_et import OptionError
from trt_et.conversion.installed import installed_variant
from trt_et.engines.serialize import build_network
from trt_et.engines.tensorrt import TensorRTBuilder, choose_dla
from trt_et.options import BuildOptions

pytestmark = pytest.mark.skipif(
    installed_variant() is None, reason="Torch-TensorRT is not installed"
)


class Config:
    """Records what TensorRT's configuration ignores without a DLA core: the core and its memory."""

    def __init__(self, config) -> None:
        object.__setattr__(self, "real", config)
        object.__setattr__(self, "pools", {})

    def __getattr__(self, name):
        return getattr(self.real, name)

    def set_memory_pool_limit(self, pool, size) -> None:
        self.real.set_memory_pool_limit(pool, size)
        self.pools[pool] = size

    def __setattr__(self, name, value) -> None:
        setattr(self.real, name, value)
        if name == "DLA_core":
            object.__setattr__(self, "core", value)


@pytest.fixture(scope="module")
def network():
    model, inputs = make("mlp")
    return build_network(request(model, *inputs))


def on_a_jetson(network, cores: int = 2, version: str = "11.4.0"):
    names = ("DeviceType", "BuilderFlag", "MemoryPoolType")
    trt = SimpleNamespace(
        __version__=version, **{name: getattr(network.trt, name) for name in names}
    )
    config = network.builder.create_builder_config()
    builder = SimpleNamespace(num_DLA_cores=cores)
    return SimpleNamespace(
        trt=trt, builder=builder, config=Config(config), interpreter=network.interpreter
    )


@pytest.mark.parametrize("fallback", [False, True])
def test_the_layers_default_to_dla_if_a_core_is_chosen(network, fallback):
    jetson = on_a_jetson(network)
    config, pools, kinds = jetson.config, network.trt.MemoryPoolType, network.trt.DeviceType
    choose_dla(jetson, BuildOptions(), 0)
    assert config.default_device_type == kinds.GPU
    choose_dla(jetson, BuildOptions(dla_core=1, dla_gpu_fallback=fallback), 0)
    assert config.default_device_type == kinds.DLA
    assert config.core == 1
    assert config.get_flag(network.trt.BuilderFlag.GPU_FALLBACK) == fallback
    settings = network.interpreter.compilation_settings
    assert config.pools[pools.DLA_MANAGED_SRAM] == settings.dla_sram_size


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("11.2.1", r"finds 0 DLA core\(s\) on cuda:0 \(TensorRT 11.0 to 11.3 have no DLA\)"),
        ("11.4.0", r"finds 0 DLA core\(s\) on cuda:0; leave dla_core out"),
    ],
)
def test_a_library_without_dla_refuses(network, version, message):
    jetson = on_a_jetson(network, cores=0, version=version)
    with pytest.raises(OptionError, match=message):
        choose_dla(jetson, BuildOptions(dla_core=0), 0)
    # A TensorRT whose builder does not know DLA at all.
    jetson.builder = SimpleNamespace()
    with pytest.raises(OptionError, match="finds 0 DLA core"):
        choose_dla(jetson, BuildOptions(dla_core=0), 0)


def test_a_fallback_without_a_core_and_another_gpu_are_refused_before_the_export():
    builder = TensorRTBuilder()
    with pytest.raises(OptionError, match="dla_gpu_fallback needs a dla_core"):
        builder.check_options(BuildOptions(dla_gpu_fallback=True))
    with (
        patch.object(torch.cuda, "is_available", return_value=True),
        patch.object(torch.cuda, "device_count", return_value=1),
        patch.object(torch.cuda, "get_device_capability", return_value=(8, 7)),
    ):
        builder.check_options(BuildOptions(compute_capabilities=("8.7",)))
        with pytest.raises(OptionError, match=r"at hand \(8.7\), not for 8.6"):
            builder.check_options(BuildOptions(compute_capabilities=("8.6",)))
