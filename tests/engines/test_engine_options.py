"""Options of engines reach TensorRT's builder, and what cannot be had is refused."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from tests.support.lowering import export, lower
from trt_et import OptionError, PartitionError, TensorRTPartitioner
from trt_et.conversion.settings import make_settings
from trt_et.engines import BuildOptions
from trt_et.engines.serialize import build_network
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder
from trt_et.options import _UNREAD, _reserved_settings


class Spy(TensorRTRTXBuilder):
    """Keeps TensorRT's configuration of the one engine that it builds."""

    def build(self, request):
        network = build_network(request)
        flags, memory = network.trt.BuilderFlag, network.trt.MemoryPoolType
        self.flags = {name for name in dir(flags) if name.isupper() and self._has(network, name)}
        self.workspace = network.config.get_memory_pool_limit(memory.WORKSPACE)
        self.level = network.config.builder_optimization_level
        return super().build(replace(request, options=BuildOptions()))

    @staticmethod
    def _has(network, name) -> bool:
        return network.config.get_flag(getattr(network.trt.BuilderFlag, name))


def test_options_reach_the_builder():
    plain, spy = Spy(), Spy()
    program = export("mlp")
    lower(program, builder=plain)
    numbers = {"workspace_size": 1 << 20, "optimization_level": 2}
    lower(program, builder=spy, refittable=True, weight_streaming=True, **numbers)
    assert spy.flags - plain.flags == {"REFIT", "WEIGHT_STREAMING"}
    assert (spy.workspace, spy.level) == (1 << 20, 2)


def test_what_tensorrt_says_of_a_failed_build_is_reported():
    with pytest.raises(PartitionError, match=r"linear.*workspace limit.*excluded_ops"):
        lower(export("mlp"), builder="tensorrt_rtx", workspace_size=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compute_capabilities": "8.6"}, "sequence of strings"),
        ({"compute_capabilities": ["8"]}, "not of the form"),
        ({"compute_capabilities": 8}, "sequence of strings"),
        ({"optimization_level": 6}, r"expected 0\.\.5"),
        ({"torch_tensorrt_settings": ["disable_tf32"]}, "expected a dictionary"),
        ({"workspace_size": 0}, "workspace_size is 0"),
        ({"workspace_size": "1G"}, "workspace_size"),
        ({"refittable": 1}, "refittable is 1"),
        ({"dla_core": -1}, "dla_core is -1; expected a DLA core"),
        (
            {"torch_tensorrt_settings": {"immutable_weights": False}},
            "option of the partitioner itself: refit",
        ),
        (
            {"torch_tensorrt_settings": {"strip_engine_weights": True}},
            "nothing here puts them back",
        ),
        (
            {"torch_tensorrt_settings": {"version_compatible": True}},
            "no other TensorRT version runs",
        ),
        (
            {"torch_tensorrt_settings": {"enable_autocast": True}},
            "would change nothing.*precision='float16'",
        ),
        (
            {"torch_tensorrt_settings": {"enabled_precisions": {torch.half}}},
            "would change nothing.*precision='float16'",
        ),
        (
            {"torch_tensorrt_settings": {"cache_built_engines": True}},
            "would change nothing.*cache=True",
        ),
        ({"full_graph": "yes"}, "full_graph is 'yes'; expected True or False"),
    ],
)
def test_an_impossible_option_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        TensorRTPartitioner(builder="reference", **options)


def test_every_setting_is_read_or_refused():
    """Torch-TensorRT's modules that are called here read all settings but those refused."""
    make_settings()  # Makes the module below importable.
    from torch_tensorrt.dynamo import _settings

    folder = Path(_settings.__file__).parent
    network = (folder / "conversion" / "_TRTInterpreter.py").read_text()
    converters = sorted((folder / "conversion").rglob("*.py"))
    passes = sorted((folder / "lowering" / "passes").glob("*.py"))
    # Called by torch_tensorrt.compile() only; run() saves the timing cache, and is not called here.
    unused = {"_conversion.py", "_TRTInterpreter.py", "rule_based_autocast.py"}
    unused.add("complex_decomposition_adapter.py")  # Before an export, for complex numbers.
    text = network[: network.index("    def run(")] + "".join(
        path.read_text() for path in (*converters, *passes) if path.name not in unused
    )
    text = text.partition("def pre_export_lowering")[0] + text.partition("def dump_lowering")[2]
    known = {field.name for field in fields(_settings.CompilationSettings)} - {
        "incompatible_settings"
    }
    read = {name for name in known if re.search(rf"settings\.{name}\b", text)}
    assert known - read - set(_reserved_settings()) == _UNREAD & known
