"""ONNX networks become TensorRT-RTX engines on a machine without a GPU."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.export import Dim

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.onnx.comparison import HAS_PARSER
from tests.support.programs import kv_cache_updates as updates
from tests.support.programs.kv_cache_models import Cache
from tests.support.programs.pt2e import quantize, quantizer
from trt_et.blob.codec import encode_blob
from trt_et.engine_info import Alias, decode_blob
from trt_et.engines.rtx_network import build_rtx_engine
from trt_et.errors import BlobError, BuilderError
from trt_et.inspection import inspect_program, read_program
from trt_et.quantizer import fp8
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
