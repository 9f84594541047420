"""Build requests as plain values: what comes out elsewhere is what would have come out here."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import Dim

from tests.support.models import make
from tests.support.programs.kv_cache_models import SHAPE, Cache
from trt_et import TensorRTPartitioner
from trt_et.builders import BuildOptions, BuildRequest, make_builder
from trt_et.errors import BuilderError, PartitionError
from trt_et.scheduler.weights_file import WeightsWriter, read_weights
from trt_et.scheduler.worker import build_in_worker
from trt_et.scheduler.worker_request import pack_request, unpack_request


class Constants(nn.Module):
    """Tied weights, views of one storage, several dtypes, a 0-d buffer, lifted tensors."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.tied = self.weight
        self.register_buffer("mask", torch.rand(8) > 0.5)
        self.register_buffer("index", torch.tensor([3, 1, 2]))
        self.register_buffer("scale", torch.tensor(2.5))
        self.register_buffer("bf16", torch.randn(8).bfloat16())
        self.register_buffer("int32", torch.arange(8, dtype=torch.int32))
        both = torch.randn(16)
        self.register_buffer("low", both[:8])
        self.register_buffer("middle", both[4:12])

    def forward(self, x):
        y = torch.where(self.mask, x @ self.weight @ self.tied, torch.tensor(7.0)) * self.scale
        y = y + self.bf16.float() + self.int32 + self.low * self.middle
        # Of topk one output is used, of split the second and then the first.
        first, second = y.split(4, -1)
        return y[:, self.index], y.topk(2).values, second - first


class Dynamic(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).relu() * x.shape[0]


def _mlp():
    return (*make("mlp"), None)


def _cnn():
    return (*make("cnn"), None)


def _constants():
    torch.manual_seed(0)
    return Constants().eval(), (torch.randn(4, 8),), None


def _dynamic():
    torch.manual_seed(0)
    sizes = {0: Dim("batch", min=1, max=8)}
    return Dynamic().eval(), (torch.randn(2, 8),), (sizes,)


def _cache():
    """What may be written in place has to be said elsewhere too."""

    def write(cache, position, rows):
        cache.index_copy_(2, position, rows)

    return Cache(write), (torch.tensor([5]), torch.randn(SHAPE)[:, :, :1]), None


CASES = {
    "mlp": _mlp,
    "cnn": _cnn,
    "constants": _constants,
    "dynamic": _dynamic,
    "cache": _cache,
}


def request_for(case: str, builder: str = "reference", **options) -> BuildRequest:
    """The request that the backend makes for a model of one partition."""
    model, inputs, dynamic_shapes = CASES[case]()
    program = torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes)
    found = []

    class Keep:
        name = builder

        def build(self, request):
            found.append(request)
            raise BuilderError("that was all")

    partitioner = TensorRTPartitioner(builder=Keep(), **options)
    with pytest.raises(PartitionError, match="that was all"):
        to_edge_transform_and_lower(program, partitioner=[partitioner])
    return found[0]


def packed(request, tmp_path, builder="reference"):
    with WeightsWriter(tmp_path / "weights") as weights:
        return pack_request(make_builder(builder), request, weights, tmp_path / "engine")


@pytest.mark.parametrize("builder", ["reference", "tensorrt_rtx"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_the_engine_is_the_one_built_in_this_process(case, builder, tmp_path):
    request = request_for(case, builder)
    here = make_builder(builder).build(request)
    result = build_in_worker(pickle.loads(pickle.dumps(packed(request, tmp_path, builder))))
    assert (result.error, result.message) == ("", "")
    assert (tmp_path / "engine").read_bytes() == here
    assert result.size == len(here)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["engine", "weights"]
    assert (here[:4] == b"TR02") == ((case, builder) == ("cache", "tensorrt_rtx"))


SCRIPT = """
import pickle, sys
from trt_et.scheduler.worker import build_in_worker
print(build_in_worker(pickle.load(open(sys.argv[1], "rb"))).message)
"""


def test_a_fresh_process_needs_the_pickle_and_the_folder_only(tmp_path):
    request = request_for("constants")
    (tmp_path / "request").write_bytes(pickle.dumps(packed(request, tmp_path)))
    run = [sys.executable, "-c", SCRIPT, str(tmp_path / "request")]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "\n"
    here = make_builder("reference").build(request)
    assert hashlib.sha256((tmp_path / "engine").read_bytes()).digest() == (
        hashlib.sha256(here).digest()
    )


def test_the_pickle_holds_no_weights_and_shared_memory_is_written_once(tmp_path):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(512, 512))
            self.view = nn.Parameter(self.weight.data.view(-1)[:512])

        def forward(self, x):
            return x @ self.weight @ self.weight + self.view

    CASES["wide"] = lambda: (Wide().eval(), (torch.randn(2, 512),), None)
    try:
        request = request_for("wide")
    finally:
        del CASES["wide"]
    weight = 512 * 512 * 4
    with WeightsWriter(tmp_path / "weights") as weights:
        builder = make_builder("reference")
        for name in ("first", "second"):
            portable = pack_request(builder, request, weights, tmp_path / name)
            assert len(pickle.dumps(portable)) < 100_000
    assert weight <= (tmp_path / "weights").stat().st_size < weight + 512 * 4 + 256
    assert build_in_worker(portable).error == ""


def test_weights_are_mapped_and_keep_their_layout(tmp_path):
    values = {
        "parameter": nn.Parameter(torch.randn(3, 4), requires_grad=False),
        "transposed": torch.randn(3, 4).t(),
        "expanded": torch.randn(3, 1).expand(3, 5),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(True),
    }
    with WeightsWriter(tmp_path / "weights") as weights:
        stored = {name: weights.add(name, value) for name, value in values.items()}
    read = read_weights(tmp_path / "weights", stored)
    for name, value in values.items():
        assert torch.equal(read[name], value), name
        assert read[name].stride() == value.stride(), name
        assert type(read[name]) is type(value)
        assert not read[name].requires_grad
    before = (tmp_path / "weights").read_bytes()
    read["transposed"].zero_()
    assert (tmp_path / "weights").read_bytes() == before
    (tmp_path / "weights").write_bytes(before[:20])
    with pytest.raises(BuilderError, match=r"have 20 bytes, expected at least \d+"):
        read_weights(tmp_path / "weights", stored)


def test_tensors_that_are_not_plain_are_refused(tmp_path):
    with WeightsWriter(tmp_path / "weights") as weights:
        for value in (
            torch.eye(3).to_sparse(),
            torch.randn(2, dtype=torch.complex64).conj(),
            torch.quantize_per_tensor(torch.randn(2), 0.1, 0, torch.qint8),
        ):
            with pytest.raises(BuilderError, match=r"constant odd is .*executor=None"):
                weights.add("odd", value)


def test_symbols_and_node_names_survive(tmp_path):
    request = request_for("dynamic")
    (limits,) = request.lowered.program.range_constraints.values()
    again = unpack_request(packed(request, tmp_path)).lowered.program
    assert [(r.lower, r.upper) for r in again.range_constraints.values()] == [
        (limits.lower, limits.upper)
    ]
    request = request_for("constants")
    again = unpack_request(packed(request, tmp_path)).lowered.program
    assert [(node.name, str(node.args)) for node in again.graph.nodes] == [
        (node.name, str(node.args)) for node in request.lowered.program.graph.nodes
    ]


def test_optimization_profiles_survive(tmp_path):
    request = request_for("dynamic", optimization_profiles=[{"x": {0: 1}}, {"x": {0: (2, 3, 8)}}])
    again = unpack_request(packed(request, tmp_path)).lowered
    assert again.profiles == request.lowered.profiles
    assert again.profiles[1] == {"input0": ((2, 8), (3, 8), (8, 8))}


def test_all_that_a_builder_is_given_travels(tmp_path):
    request = request_for("dynamic")
    profiles = ({"input0": ((1, 8), (2, 8), (4, 8))}, {"input0": ((5, 8), (6, 8), (8, 8))})
    lowered = replace(request.lowered, profiles=profiles, names={"input0": "x"})
    options = BuildOptions(("8.9",), 3, {"disable_tf32": True})
    request = BuildRequest("part", lowered, 7, options, tmp_path / "timings")
    again = unpack_request(pickle.loads(pickle.dumps(packed(request, tmp_path))))
    # Of these, the program is compared above; the monitor is the worker's own.
    for item in fields(BuildRequest):
        if item.name not in ("lowered", "monitor"):
            assert getattr(again, item.name) == getattr(request, item.name), item.name
    for item in fields(lowered):
        if item.name not in ("program", "sources"):  # Sources are what builds are compared by.
            assert getattr(again.lowered, item.name) == getattr(lowered, item.name), item.name


class Failing:
    name = "failing"

    def build(self, request):
        class Unpicklable(Exception):
            pass

        raise Unpicklable("no luck")


class NoBytes:
    name = "no_bytes"

    def build(self, request):
        return None


@pytest.mark.parametrize(
    ("builder", "error", "message"),
    [(Failing(), "Unpicklable", "no luck"), (NoBytes(), "BuilderError", "returned NoneType")],
)
def test_failures_come_back_as_text_and_leave_no_file(builder, error, message, tmp_path):
    request = request_for("mlp")
    with WeightsWriter(tmp_path / "weights") as weights:
        portable = pack_request(builder, request, weights, tmp_path / "engine")
    result = pickle.loads(pickle.dumps(build_in_worker(pickle.loads(pickle.dumps(portable)))))
    assert result.error == error
    assert message in result.message
    assert "Traceback" in result.trace
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_a_full_disk_is_said(tmp_path):
    request = request_for("mlp")
    with (
        pytest.raises(BuilderError, match=r"cannot be written to /dev/full: .*scratch="),
        WeightsWriter(Path("/dev/full")) as weights,
    ):
        pack_request(make_builder("reference"), request, weights, tmp_path / "engine")
