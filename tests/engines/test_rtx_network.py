"""ONNX networks become TensorRT-RTX engines on a machine without a GPU.

``RtxParserBuilder`` is the builder ``tensorrt_rtx`` where Torch-TensorRT is not installed
(``tests/test_imports.py``).
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.export import Dim

from tests.support.lowering import blobs, lower, lower_case, request
from tests.support.models import Function
from tests.support.onnx.comparison import HAS_PARSER
from tests.support.programs import kv_cache_updates as updates
from tests.support.programs.kv_cache_models import Cache
from tests.support.programs.pt2e import quantize, quantizer
from trt_et import TensorRTPartitioner
from trt_et.blob.codec import encode_blob
from trt_et.conversion.installed import installed_variant
from trt_et.engine_info import Alias, decode_blob
from trt_et.engines import serialize
from trt_et.engines.key import builder_fingerprint
from trt_et.engines.onnx import make_onnx_model
from trt_et.engines.rtx_network import RtxParserBuilder, build_rtx_engine
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder
from trt_et.errors import BlobError, BuilderError, OptionError
from trt_et.inspection import inspect_program, read_program
from trt_et.inspection.texts import engine_text
from trt_et.quantizer import fp8, int8
from trt_et.runtime.networks import build_program

pytestmark = pytest.mark.skipif(not HAS_PARSER, reason="tensorrt-rtx is not installed")

WEIGHT = torch.nn.Linear(64, 32)


@pytest.fixture(scope="module")
def program() -> bytes:
    sizes = (({0: Dim("rows", min=1, max=8)},),)
    model = Function(lambda x: torch.relu(WEIGHT(x)))
    exported = torch.export.export(model, (torch.randn(4, 64),), dynamic_shapes=sizes)
    return lower(exported, builder="onnx", workspace_size=1 << 24, optimization_level=2)


def test_the_program_has_engines_for_the_targets_and_no_weights(program):
    build = partial(build_rtx_engine, capabilities=["8.9", "12.0"])
    pte, (engine,) = build_program(program, build)
    assert engine.info.builder == "tensorrt_rtx"
    assert engine.info.compute_capabilities == ("8.9", "12.0")
    assert engine.info.network is None
    assert engine.info.parser == "onnx"
    assert engine.info.bindings == decode_blob(blobs(program)[0]).info.bindings
    (delegate,) = inspect_program(pte)[0].delegates
    assert delegate.engine == engine.info
    data = WEIGHT.weight.detach().numpy().tobytes()
    assert data in program
    assert data in bytes(decode_blob(engine.blob).engine)
    assert not read_program(pte).named_data


def test_a_cache_is_written_in_place_by_the_engine_and_returned_whole_by_the_network():
    with torch.no_grad():
        exported = torch.export.export(Cache(updates.put), (torch.tensor([5]), updates.rows()))
    program = lower(exported, builder="onnx")
    assert decode_blob(blobs(program)[0]).info.aliases == ()
    _, (engine,) = build_program(program, build_rtx_engine)
    (cache,) = [b for b in engine.info.inputs if b.shape == tuple(Cache(updates.put).cache.shape)]
    assert [alias.input for alias in engine.info.aliases] == [cache.name]
    assert isinstance(engine.info.aliases[0], Alias)


def test_fp8_is_for_gpus_that_have_it():
    torch.manual_seed(0)
    exported = quantize(torch.nn.Linear(64, 32), (torch.randn(4, 64),), quantizer(fp8()))
    _, (engine,) = build_program(lower(exported, builder="onnx"), build_rtx_engine)
    targets = [tuple(map(int, t.split("."))) for t in engine.info.compute_capabilities]
    assert targets
    assert min(targets) >= (8, 9)


def test_a_missing_and_a_damaged_weight_are_named(program):
    (blob,) = blobs(program)
    (key,) = decode_blob(blob).info.network["weights"]
    with pytest.raises(BlobError, match=f"has no weight {key}"):
        build_rtx_engine(blob, {})
    with pytest.raises(BlobError, match=f"the weight {key} is damaged"):
        build_rtx_engine(blob, {key: bytes(64 * 32 * 4)})


def test_what_the_parser_refuses_is_one_sentence(program):
    import onnx

    decoded = decode_blob(blobs(program)[0])
    model = onnx.ModelProto.FromString(bytes(decoded.engine))
    model.graph.node[-1].op_type = "BitwiseNot"
    (key,) = decoded.info.network["weights"]
    data = {key: WEIGHT.weight.detach().numpy().tobytes()}
    with pytest.raises(BuilderError, match=r"TensorRT-RTX \S+ does not take node '.+' \(Bitw"):
        build_rtx_engine(encode_blob(model.SerializeToString(), decoded.info), data)


def info_of(program: torch.export.ExportedProgram, **options):
    (blob,) = blobs(lower(program, builder=RtxParserBuilder(), full_graph=True, **options))
    return decode_blob(blob).info


def test_the_builder_takes_targets_profiles_and_precision_and_says_what_it_is():
    sizes = ({0: Dim("rows", min=1, max=8)},)
    exported = torch.export.export(WEIGHT, (torch.randn(4, 64),), dynamic_shapes=sizes)
    partitioner = TensorRTPartitioner(
        builder=RtxParserBuilder(),
        compute_capabilities=["8.9"],
        precision="float16",
        optimization_profiles=[{"input": {0: 1}}, {"input": {0: (2, 4, 8)}}],
        workspace_size=1 << 24,
        optimization_level=2,
        weight_streaming=True,
        hardware_compatible=True,
    )
    (delegate,) = inspect_program(lower(exported, partitioner=partitioner))[0].delegates
    info = delegate.engine
    assert (info.builder, info.parser, info.precision) == ("tensorrt_rtx", "onnx", "float16")
    assert info.compute_capabilities == ("8.9",)
    assert engine_text(info) == f"tensorrt_rtx {info.library_version}, by its ONNX parser"
    assert str(partitioner.report).startswith("engines: by the ONNX parser of TensorRT-RTX 1.")


def test_a_setting_that_torch_tensorrt_reads_is_refused():
    with pytest.raises(OptionError, match="setting 'use_fp32_acc' needs Torch-TensorRT"):
        TensorRTPartitioner(
            builder=RtxParserBuilder(), torch_tensorrt_settings={"use_fp32_acc": True}
        )


def test_tf32_can_be_disabled_without_torch_tensorrt():
    program = torch.export.export(torch.nn.Linear(8, 8).eval(), (torch.ones(2, 8),))
    found = [
        inspect_program(
            lower(program, builder=RtxParserBuilder(), torch_tensorrt_settings=settings)
        )[0]
        .delegates[0]
        .engine.sha256
        for settings in ({}, {"disable_tf32": False}, {"disable_tf32": True})
    ]
    assert found[0] == found[1] != found[2]


def test_what_tensorrt_rtx_does_not_have_is_refused_as_by_the_other_builder():
    for option in ({"dla_core": 0}, {"compute_capabilities": ["9.9"]}):
        with pytest.raises(OptionError, match=r"TensorRT-RTX .*has no"):
            TensorRTPartitioner(builder=RtxParserBuilder(), **option)


@pytest.mark.parametrize("in_place", [True, False])
def test_the_builder_writes_a_cache_in_place_unless_it_may_not(in_place):
    with torch.no_grad():
        exported = torch.export.export(Cache(updates.put), (torch.tensor([5]), updates.rows()))
    aliases = info_of(exported, state_in_place=in_place).aliases
    assert aliases == ((Alias("output0", "input0"),) if in_place else ())


def test_a_cache_that_does_not_build_in_place_is_built_another_way(monkeypatch, caplog):
    with torch.no_grad():
        exported = torch.export.export(Cache(updates.put), (torch.tensor([5]), updates.rows()))
    built = serialize._build

    def build(network, write):
        return built(network, write) if not network.aliases else False

    monkeypatch.setattr(serialize, "_build", build)
    assert info_of(exported).aliases == ()
    assert "no engine that writes state in place" in caplog.text


@pytest.mark.parametrize("config", [int8, fp8], ids=["int8", "fp8"])
def test_quantized_models_are_one_engine(config):
    """TensorRT-RTX 1.6 has no int8 convolutions; the int8 numbers are read as floats."""
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 8, 8),)
    layers = (torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 8))
    exported = quantize(torch.nn.Sequential(*layers), inputs, quantizer(config()))
    assert bool(info_of(exported).compute_capabilities) == (config is fp8)


def test_the_model_has_the_rewrites_for_tensorrt_rtx():
    """A residual sum, which is computed as one of matrices."""
    layer = torch.nn.Linear(8, 8).half()
    inputs = (torch.randn(2, 3, 8).half(), torch.randn(2, 3, 8))
    widened = torch.ops.aten._to_copy
    asked = request(Function(lambda x, y: widened(layer(x), dtype=torch.float32) + y), *inputs)
    reshapes = [
        sum(node.op_type == "Reshape" for node in make_onnx_model(asked, library).proto.graph.node)
        for library in (None, "tensorrt_rtx")
    ]
    assert reshapes == [0, 3]


@pytest.mark.long
@pytest.mark.skipif(installed_variant() is None, reason="Torch-TensorRT is not installed")
def test_the_two_ways_to_build_share_no_engine(tmp_path):
    kinds = (TensorRTRTXBuilder(), RtxParserBuilder())
    assert len({builder_fingerprint(kind) for kind in kinds}) == 2
    for kind in (*kinds, *kinds):
        lower_case("mlp", builder=kind, cache=tmp_path, progress=False)
    assert len(list((tmp_path / "v1" / "engines").glob("??/*"))) == 2
