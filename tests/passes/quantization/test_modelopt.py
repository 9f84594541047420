"""Programs quantized by modelopt, int8 and fp8, become quantized engines."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from functools import cache

import pytest
import torch
from executorch.exir import to_edge
from torch import nn

from tests.support.lowering import blobs, lower, reference
from tests.support.modelopt.models import (
    Blocks,
    Quantizer,
    expected_fp8,
    exported,
    fake_quantized,
)
from tests.support.native_environment import ROOT
from tests.support.programs.quantized_models import MODELS, Mlp
from tests.support.programs.quantized_networks import Network, needs_rtx, plan
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et.engine_info import decode_blob
from trt_et.engine_program.make_program import make_engine_program

FP8, INT8 = (8, 4), (8, 0)
OPERATOR = "tensorrt::quantize_op.default"
KINDS = {"fp8": FP8, "int8": INT8}


def made(name: str, bits: tuple[int, int], **options):
    torch.manual_seed(0)
    model, shape = MODELS[name]
    inputs = (torch.randn(shape),)
    return fake_quantized(model().eval(), inputs, bits, **options), inputs


@cache
def program(name: str, bits: tuple[int, int], **options) -> torch.export.ExportedProgram:
    return exported(*made(name, bits, **options))


def blocks(width: int, block: int) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    return Blocks(width, block).eval(), (torch.randn(4, width),)


class Chosen(nn.Module):
    """A quantizer in a branch, whose range is an operand there."""

    def __init__(self) -> None:
        super().__init__()
        self.quantizer = Quantizer(torch.tensor([2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        amax = self.quantizer.amax

        def quantized(x: torch.Tensor, amax: torch.Tensor) -> torch.Tensor:
            return torch.ops.tensorrt.quantize_op(x, amax, 8, 4, False, False) * 2

        def plain(x: torch.Tensor, amax: torch.Tensor) -> torch.Tensor:
            return x * amax

        return torch.cond(x.sum() > 0, quantized, plain, (x, amax))


class Dynamic(nn.Module):
    """A linear layer whose input gets its range when the program runs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(16, 8)
        self.quantizer = Quantizer(torch.ones(1), dynamic=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.quantizer(x))


class Once(nn.Module):
    """One quantizer and a sum."""

    def __init__(self, *how: int) -> None:
        super().__init__()
        self.how = how
        self.register_buffer("amax", torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tensorrt.quantize_op(x, self.amax, *self.how) + 1


# A name, and: a model and its inputs, options of the partitioner, why some is computed in floats.
CASES = {
    "block-fp8": (lambda: made("block", FP8), {}, ""),
    "residual-fp8": (lambda: made("residual", FP8), {}, ""),
    "mlp-int8": (lambda: made("mlp", INT8), {}, ""),
    "blocks of 4 bits": (lambda: blocks(128, 64), {}, ""),
    "weights of 4 bits": (
        lambda: made("mlp", (4, 0), input_bits=INT8),
        {},
        "2 quantize operators are computed in floats: TensorRT quantizes to",
    ),
    "old target": (
        lambda: made("mlp", FP8),
        {"compute_capabilities": ["8.6", "12.0"]},
        "4 quantize operators are computed in floats: fp8 needs compute capability",
    ),
    "linear excluded": (
        lambda: made("mlp", FP8),
        {"excluded_ops": ["aten.linear"]},
        "the caller excluded the operators that they quantize for",
    ),
    "quantizer excluded": (
        lambda: made("mlp", FP8),
        {"excluded_ops": ["tensorrt.quantize_op"]},
        "its operator is excluded by the caller",
    ),
    "dynamic": (
        lambda: (Dynamic(), (torch.randn(4, 16),)),
        {},
        "its amax is computed at run time",
    ),
}


@pytest.mark.parametrize("case", sampled(CASES, 16))
def test_it_runs_like_eager_and_says_what_is_computed_in_floats(caplog, case):
    make, options, reason = CASES[case]
    model, inputs = make()
    partitioner, found = reference(**options), exported(model, inputs)
    before = str(found)
    with caplog.at_level(logging.WARNING, logger="trt_et"):
        pte = lower(found, partitioner=partitioner)
    assert str(found) == before
    check(pte, model, inputs, inputs, atol=1e-5, rtol=1e-5)
    assert reason in caplog.text
    if not reason:
        assert "computed in floats" not in caplog.text
        assert not partitioner.report.not_delegated
        (partition,) = partitioner.report.partitions
        assert OPERATOR in partition.operators or case == "blocks of 4 bits"
        assert "aten::alias_copy.default" not in partition.operators  # Of detach().


@pytest.mark.long
def test_a_branch_runs_like_eager():
    x = torch.full((3,), 0.3)
    pte = lower(exported(Chosen(), (x,)))
    check(pte, lambda x: expected_fp8(x, torch.tensor(2.0)) * 2, (x,), (x,), atol=1e-5, rtol=1e-5)


@needs_rtx
@pytest.mark.parametrize(("name", "kind"), [("residual", "int8"), ("block", "fp8")])
def test_tensorrt_rtx_builds_it(name, kind):
    (blob,) = blobs(lower(program(name, KINDS[kind]), builder="tensorrt_rtx"))
    assert decode_blob(blob).info.builder == "tensorrt_rtx"


@needs_rtx
def test_tensorrt_rtx_builds_a_branch_where_the_range_is_an_input():
    found = exported(Chosen(), (torch.full((3,), 0.3),))
    assert len(blobs(lower(found, builder="tensorrt_rtx"))) == 3  # The condition has one too.


@pytest.mark.long
@needs_rtx
def test_the_blob_says_that_fp8_needs_newer_gpus():
    def targets(bits: tuple[int, int], **options) -> list[tuple[int, ...]]:
        (blob,) = blobs(lower(program("mlp", bits), builder="tensorrt_rtx", **options))
        found = decode_blob(blob).info.compute_capabilities
        return [tuple(int(part) for part in text.split(".")) for text in found]

    assert min(targets(FP8)) == (8, 9)
    assert max(targets(FP8)) >= (12, 0)
    assert targets(FP8, compute_capabilities=["12.0"]) == [(12, 0)]
    assert targets(FP8, compute_capabilities=["8.6", "12.0"]) == [(8, 6), (12, 0)]  # In floats.
    assert targets(INT8) == []


@needs_rtx
@pytest.mark.parametrize(
    ("block", "most", "message"),
    [
        (64, 0.75, "is stored as 4 bits with scales of groups"),
        (16, 1.6, "is stored as int8: it has groups of 16"),
    ],
)
def test_the_engine_holds_blocks_of_4_bits_as_the_log_says(caplog, block, most, message):
    model, inputs = blocks(1024, block)
    with caplog.at_level(logging.INFO, logger="trt_et"):
        (blob,) = blobs(lower(exported(model, inputs), builder="tensorrt_rtx"))
    assert len(blob) < most * 1024 * 1024  # The engine has 0.15 MB beside its weight.
    assert message in caplog.text


@needs_rtx
@pytest.mark.parametrize("bits", KINDS.values(), ids=KINDS)
def test_the_engine_holds_the_weights_in_8_bits(bits):
    inputs = (torch.randn(4, 512),)
    found = exported(fake_quantized(Mlp(512), inputs, bits), inputs)
    (blob,) = blobs(lower(found, builder="tensorrt_rtx"))
    assert len(blob) < 2 * (2 * 512 * 1024)


@needs_rtx
@pytest.mark.parametrize(("bits", "high"), [(FP8, 448), (INT8, 127)], ids=["fp8", "int8"])
def test_each_operator_is_two_layers_whose_scale_is_the_range_over_that_of_the_type(bits, high):
    model, inputs = made("mlp", bits)
    network = Network(exported(model, inputs))  # TensorRT's constants live as long as it does.
    # Torch-TensorRT computes int8 weights itself, TensorRT those of fp8.
    kinds = network.kinds
    assert (kinds["QUANTIZE"], kinds["DEQUANTIZE"]) == ((2, 4) if bits == INT8 else (4, 4))
    weights = [w for name, w in network.constants.items() if name.endswith("_scale")]
    scales = {w.item() for w in weights if w.size == 1}
    for layer in (model[0], model[2]):
        amax = layer.input.amax.item()
        assert any(scale == pytest.approx(amax / high, rel=1e-6) for scale in scales)


@needs_rtx
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_are_quantized(dtype):
    torch.manual_seed(0)
    inputs = (torch.randn(4, 16, dtype=dtype),)
    found = exported(fake_quantized(Mlp().to(dtype), inputs), inputs)
    assert not plan(found).not_delegated
    assert not Network(found).kinds["CAST"]
    (blob,) = blobs(lower(found, builder="tensorrt_rtx"))
    assert [b.dtype for b in decode_blob(blob).info.bindings] == [str(dtype)[6:]] * 2


def test_an_operator_that_no_kernel_has_is_in_an_engine_however_small():
    found = exported(Once(8, 4, False, False), (torch.rand(4),))
    assert len(blobs(lower(found, min_block_size=1000))) == 1


def refusals(caplog, found: torch.export.ExportedProgram) -> str:
    with caplog.at_level(logging.WARNING, logger="trt_et"):
        plan(found)
    return "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("trt_et."))


@pytest.mark.parametrize(("is_unsigned", "reason"), [(True, "numbers with a sign"), (False, "")])
def test_what_tensorrt_has_no_layer_for(caplog, is_unsigned, reason):
    found = exported(Once(8, 0, is_unsigned, False), (torch.rand(4),))
    text = refusals(caplog, found)
    assert reason in text
    assert bool(text) == bool(reason)


def test_fp8_has_one_scale_for_a_tensor(caplog):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8))
    found = fake_quantized(model, (torch.randn(4, 16),))
    found[0].weight = Quantizer(found[0].layer.weight, FP8, channels=True)
    text = refusals(caplog, exported(found, (torch.randn(4, 16),)))
    assert "1 quantize operators are computed in floats: it has a scale for each channel" in text


def test_engines_are_built_where_modelopt_is_not_imported():
    # In a worker process, say: what is sent to it must not need modelopt.
    edge = to_edge(program("mlp", FP8)).exported_program()
    assert "tensorrt.quantize_op" in str(edge.graph)
    made = make_engine_program(edge, "test")
    assert "tensorrt." not in str(made.exported.graph)
    assert "trt_et.fake_quantize" in str(made.exported.graph)


@pytest.mark.skipif(not importlib.util.find_spec("modelopt"), reason="modelopt is not installed")
def test_modelopt_itself(tmp_path):
    command = [sys.executable, "-m", "tests.support.modelopt.process", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    for path in tmp_path.glob("*.pte"):
        inputs, expected = (torch.load(path.with_suffix(s)) for s in (".inputs", ".expected"))
        check(path.read_bytes(), lambda _, y=expected: y, inputs, inputs, atol=1e-5, rtol=1e-5)
