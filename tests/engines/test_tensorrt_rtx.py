"""Real TensorRT-RTX engines, built without a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tests.support.lowering import blobs, lower, lower_case, request
from tests.support.models import make
from trt_et import BuilderUnavailable, OptionError, TensorRTPartitioner
from trt_et.conversion.installed import installed_variant
from trt_et.engine_info import decode_blob
from trt_et.engines.serialize import build_network, serialize
from trt_et.engines.tensorrt_rtx import allow_captures

pytestmark = pytest.mark.skipif(
    installed_variant() != "tensorrt_rtx", reason="torch-tensorrt-rtx is not installed"
)


@pytest.mark.parametrize(
    ("name", "builder"),
    [
        ("mlp", "auto"),
        *((name, "tensorrt_rtx") for name in ("cnn", "vit", "channels_last", "outputs")),
    ],
)
def test_a_supported_model_is_one_engine(name, builder):
    (blob,) = blobs(lower_case(name, builder=builder))
    decoded = decode_blob(blob)
    assert decoded.magic == b"TR01"
    assert decoded.info.builder == "tensorrt_rtx"
    assert decoded.info.library_version.startswith("1.")
    assert len(decoded.engine) > 10_000


def test_attention_with_constant_queries_is_built():
    class Learned(torch.nn.Module):
        """The first attention of a decoder whose queries are learned: nothing in it is an input."""

        def __init__(self) -> None:
            super().__init__()
            self.queries = torch.nn.Parameter(torch.randn(1, 4, 6, 8))

        def forward(self, x):
            attention = torch.nn.functional.scaled_dot_product_attention
            y = attention(self.queries, self.queries * 2, self.queries)
            return attention(y, x, x)

    program = torch.export.export(Learned().eval(), (torch.randn(1, 4, 6, 8),))
    assert len(blobs(lower(program, builder="tensorrt_rtx"))) == 1


def test_targets_are_selectable_and_recorded():
    one, two = (
        blobs(lower_case("mlp", builder="tensorrt_rtx", compute_capabilities=targets))[0]
        for targets in (["8.6"], ["8.9", "12.0"])
    )
    assert decode_blob(one).info.compute_capabilities == ("8.6",)
    assert decode_blob(two).info.compute_capabilities == ("8.9", "12.0")
    assert bytes(decode_blob(one).engine) != bytes(decode_blob(two).engine)


def test_an_unknown_target_is_refused_before_the_export_and_lists_the_known_ones():
    with pytest.raises(OptionError, match=r"no target 9\.9; it has .*8\.6"):
        TensorRTPartitioner(builder="tensorrt_rtx", compute_capabilities=["8.6", "9.9"])


@pytest.mark.parametrize("options", [{"dla_core": 0}, {"dla_gpu_fallback": True}])
def test_dla_is_refused(options):
    with pytest.raises(OptionError, match="TensorRT-RTX has no DLA"):
        TensorRTPartitioner(builder="tensorrt_rtx", **options)


def test_the_other_flavour_is_unavailable_and_says_what_to_install():
    with pytest.raises(
        BuilderUnavailable,
        match=r"Use another environment, or run: pip uninstall torch-tensorrt-rtx && pip install",
    ):
        lower_case("mlp", builder="tensorrt")


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_what_stops_the_stream_comes_out_of_the_build(error):
    model, inputs = make("order")
    calls = []

    def write(piece):
        calls.append(len(piece))
        raise error

    with pytest.raises(type(error)) as caught:
        serialize(build_network(request(model, *inputs)), "test", write)
    assert caught.value is error
    assert len(calls) == 1


def test_a_tensorrt_that_cannot_stream_hands_its_engine_over_whole():
    model, inputs = make("order")
    streamed, whole = [], []
    for pieces in (streamed, whole):
        network = build_network(request(model, *inputs))
        if pieces is whole:
            network.trt = SimpleNamespace(IProgressMonitor=network.trt.IProgressMonitor)
        serialize(network, "test", lambda piece, to=pieces: to.append(bytes(piece)) or len(piece))
    assert len(whole) == 1
    assert len(b"".join(streamed)) == len(whole[0])


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_runs_of_static_engines_may_be_captured_into_graphs(dynamic, monkeypatch):
    flags = []

    def allow(network):
        allow_captures(network)
        flags.append(network.config.get_flag(network.trt.BuilderFlag.REQUIRE_USER_ALLOCATION))

    monkeypatch.setattr("trt_et.engines.tensorrt_rtx.allow_captures", allow)
    sizes = ({0: torch.export.Dim("batch", min=2, max=8)},) if dynamic else None
    program = torch.export.export(torch.nn.Linear(4, 4), (torch.randn(3, 4),), dynamic_shapes=sizes)
    lower(program, builder="tensorrt_rtx")
    assert flags == [not dynamic]
