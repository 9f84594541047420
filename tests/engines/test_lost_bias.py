"""No engine of TensorRT-RTX has a kernel that may lose a bias, by whatever road it is built.

docs/internals/upstream/rtx_lost_bias.md. Engines of the native builder are built in tests/runtime.
"""

from __future__ import annotations

import json
import logging

import pytest
import torch

from tests.support.kernel_texts import LOST_BIASES
from tests.support.lowering import blobs, lower
from tests.support.native_environment import ROOT
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.lost_biases import FORMS, export
from tests.support.programs.quantized_networks import needs_rtx
from tests.support.sampled import sampled
from trt_et.engine_info import decode_blob
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines import BuildOptions, BuildRequest, lost_bias, tensorrt_rtx
from trt_et.engines.rtx_network import RtxParserBuilder
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder
from trt_et.errors import PartitionError
from trt_et.inspection.kernels import lost_biases

pytestmark = needs_rtx
ROADS = {"converters": TensorRTRTXBuilder, "parser": RtxParserBuilder}


def results(name, road="converters", **options):
    (blob,) = blobs(lower(export(name, **options), builder=ROADS[road]()))
    return lost_biases(decode_blob(blob).engine)


@pytest.fixture
def unchecked(monkeypatch):
    monkeypatch.setattr(tensorrt_rtx, "keeps_biases", lambda *_: True)


@pytest.fixture
def without_zeros(monkeypatch):
    monkeypatch.setattr(lost_bias, "_add_zeros", lambda _: False)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("name", sampled(FORMS, 3))
def test_no_kernel_of_a_form_may_lose_its_bias(name, road):
    assert results(name, road) == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nor_in_other_dtypes(dtype):
    assert results("GEGLU by chunk", dtype=dtype) == ()


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("name", sampled(FORMS, 6))
def test_unchecked_engines_of_the_forms_have_such_a_kernel(unchecked, name, road):
    assert results(name, road)


@pytest.mark.usefixtures("without_zeros")
def test_what_stays_so_is_refused_with_its_node_unless_the_caller_allows_it(monkeypatch, caplog):
    with pytest.raises(PartitionError, match=r"tensorrt_0.* may lose the bias of gelu_0\b.*ANY_K"):
        results("GEGLU by chunk")
    monkeypatch.setenv("TRT_ET_ANY_KERNEL", "1")
    assert len(results("GEGLU by chunk")) == 1
    (said,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert "may lose the bias of gelu_0; it is built all the same" in said.getMessage()


@pytest.mark.parametrize("name", ["GEGLU by chunk", "sum read twice"])
def test_the_changed_network_computes_what_it_did(name, monkeypatch):
    """With 0 behind every product that the rewrite would change, before the first build."""
    from tests.support.network_evaluator import comparison

    filled = comparison.build_network

    def changed(*arguments):
        network = filled(*arguments)
        assert lost_bias._add_zeros(network)
        assert not lost_bias._add_zeros(network), "0 is added twice"
        return network

    monkeypatch.setattr(comparison, "build_network", changed)
    program = make_engine_program(export(name, torch.float32).run_decompositions({}), "test")
    verdict = compare(BuildRequest("test", program, 0, BuildOptions()), *FORMS[name][1])
    assert verdict.outcome == "equal", verdict


def test_kernels_that_cannot_be_read_are_said_once(monkeypatch, caplog):
    monkeypatch.setattr(lost_bias, "lost_biases", lambda _: None)
    lost_bias._say_unread.cache_clear()
    for _ in range(2):
        results("linear")
    assert len([r for r in caplog.records if "cannot be read: whether one loses" in r.msg]) == 1
    lost_bias._say_unread.cache_clear()


@pytest.mark.parametrize("name", LOST_BIASES)
def test_the_text_of_an_engine_says_which_products_may_lose_a_bias(name):
    data, expected = LOST_BIASES[name]
    assert lost_biases(data) == expected


def test_the_report_has_the_cost_that_was_measured():
    report = (ROOT / "docs/internals/upstream/rtx_lost_bias.md").read_text()
    networks = json.loads((ROOT / "benchmarks/results/lost_bias.json").read_text())["networks"]
    rows = [
        f"| {name} | {' -> '.join(map(str, each['kernels']))} | "
        f"{' -> '.join(f'{count / 1e6:.1f} MB' for count in each['bytes'])} |"
        for name, each in networks.items()
        if each["lost"][0]
    ]
    assert "\n".join(rows) + "\n\n" in report
    assert not any(each["lost"][1] for each in networks.values())
