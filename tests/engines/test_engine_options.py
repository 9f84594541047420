"""Options of engines reach TensorRT's builder, and what cannot be had is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.lowering import export, lower
from trt_et import OptionError, PartitionError, TensorRTPartitioner
from trt_et.engines import BuildOptions
from trt_et.engines.rtx_network import RtxParserBuilder
from trt_et.engines.serialize import build_network
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder
from trt_et.inspection import inspect_program


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
    lower(program, builder=spy, weight_streaming=True, **numbers)
    assert spy.flags - plain.flags == {"WEIGHT_STREAMING"}
    assert (spy.workspace, spy.level) == (1 << 20, 2)


@pytest.mark.parametrize("builder", [TensorRTRTXBuilder(), RtxParserBuilder()])
def test_an_engine_of_static_shapes_can_stream_its_weights(builder):
    plain, streaming = (
        inspect_program(lower(export("mlp"), builder=builder, weight_streaming=given))[0]
        .delegates[0]
        .engine.sha256
        for given in (False, True)
    )
    assert plain != streaming


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
        ({"build": {"dla_core": 0}}, "build is dict; expected a BuildOptions object"),
        ({"full_graph": "yes"}, "full_graph is 'yes'; expected True or False"),
    ],
)
def test_an_impossible_option_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        TensorRTPartitioner(builder="reference", **options)


def test_options_may_be_given_as_an_object_and_one_by_one():
    build = BuildOptions(optimization_level=2, weight_streaming=True, precision="float16")
    made = TensorRTPartitioner(builder="reference", build=build, precision="bfloat16")
    assert repr(made) == (
        "TensorRTPartitioner(builder='reference', optimization_level=2, weight_streaming=True, "
        "precision='bfloat16')"
    )
    flat = {"optimization_level": 2, "weight_streaming": True, "precision": "bfloat16"}
    assert repr(TensorRTPartitioner(builder="reference", **flat)) == repr(made)


def test_tensorrt_rtx_refuses_an_engine_for_the_refitter_without_a_gpu(monkeypatch):
    builder = TensorRTRTXBuilder()
    with pytest.raises(OptionError, match="builds no engine for its refitter without a GPU"):
        builder.check_options(BuildOptions(refittable=True))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    builder.check_options(BuildOptions(refittable=True))
