"""Programs with TensorRT blobs, through the real provider and a fake TensorRT; simulated GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.devtools import Inspector

from tests.support.fake_tensorrt import FakeBuilder, Line
from tests.support.native_programs import export


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    x = torch.randn(3, 8)
    batch = ({0: torch.export.Dim("batch", min=1, max=8)},)
    dynamic = {"dynamic": batch, "run": (torch.randn(5, 8),)}
    upstream = FakeBuilder(upstream=True)
    aliased = FakeBuilder(upstream=True, alias=True)
    cases: dict[str, dict[str, Any]] = {
        "streaming": {"builder": FakeBuilder(streamable=512)},
        "planned": {},
        "on_2": {"device": "cuda:2"},
        "host": {"host": True},
        "host_on_2": {"host": True, "device": "cuda:2"},
        "dynamic": dynamic,
        "dynamic_host": {"host": True, **dynamic},
        "upstream": {"builder": upstream},
        "upstream_dynamic": {"builder": upstream, **dynamic},
        "aliased": {"builder": aliased},
        "aliased_host": {"builder": aliased, "host": True},
        "other_minor": {"builder": FakeBuilder(version="11.1.0")},
    }
    return {
        name: export(folder, name, Line(), (x,), **({"builder": FakeBuilder()} | options))
        for name, options in cases.items()
    }


RUNNABLE = (
    *("planned", "on_2", "host", "host_on_2", "dynamic", "dynamic_host", "upstream"),
    *("upstream_dynamic", "aliased", "aliased_host", "other_minor"),
)


@pytest.fixture(scope="module")
def results(lines, stock, fake_tensorrt):
    jobs = {
        name: {"program": str(lines[name].path), "inputs": lines[name].inputs, "repeat": 6}
        for name in RUNNABLE
    }
    facts = stock(*jobs.values(), TRT_ET_CUDA="simulated:4", **fake_tensorrt)
    return facts | {"results": dict(zip(jobs, facts["results"], strict=True))}


@pytest.mark.parametrize("name", RUNNABLE)
def test_blobs_run_in_the_stock_runtime(lines, results, name):
    result = results["results"][name]
    assert "error" not in result, result
    torch.testing.assert_close(result["outputs"], lines[name].outputs)


def test_the_engine_is_on_its_gpu_and_nowhere_else(results):
    for name, gpu in (("planned", 0), ("on_2", 2), ("host_on_2", 2)):
        live = results["results"][name]["loaded"]["live"][:4]
        assert [size > 0 for size in live] == [index == gpu for index in range(4)], name
    assert not any(results["end"]["live"])
    assert results["end"]["mallocs"] == results["end"]["frees"]


def test_steady_calls_wait_for_each_copy_of_the_host_and_allocate_nothing(results):
    # ExecuTorch's copy to the GPU is waited for, too: it may still be reading the host's memory.
    waits = {"planned": 2, "host": 1, "dynamic": 2, "aliased": 2}
    for name, expected in waits.items():
        before, after = (results["results"][name][key] for key in ("before", "after"))
        assert after["synchronizations"] - before["synchronizations"] == expected, name
        assert after["mallocs"] == before["mallocs"], name
        assert after["copies_h2d"] - before["copies_h2d"] == 1, name
        assert after["copies_d2h"] - before["copies_d2h"] == 1, name
        assert after["copies_peer"] == before["copies_peer"], name


@pytest.fixture
def run(runner):
    def start(program, *flags, **env):
        inputs = ",".join(map(str, program.input_files()))
        return runner(
            *("--model_path", program.path, "--inputs", inputs, "--num_executions=5", *flags),
            cuda="simulated:4",
            TRT_ET_LOG="debug",
            **env,
        )

    return start


def test_options_come_from_the_environment(run, lines, fake_tensorrt):
    moved = run(lines["planned"], TRT_ET_DEVICE="cuda:3", **fake_tensorrt)
    assert moved.returncode == 0, moved.stderr
    assert "loaded a TensorRT engine" in moved.stderr
    assert "on cuda:3" in moved.stderr
    half = run(lines["streaming"], TRT_ET_WEIGHT_STREAMING_BUDGET="50%", **fake_tensorrt)
    assert "weight streaming: 256 of 512 bytes on the GPU" in half.stderr
    budget = run(lines["streaming"], TRT_ET_WEIGHT_STREAMING_BUDGET="9999", **fake_tensorrt)
    assert "refuses weight_streaming_budget 9999" in budget.stderr


def test_options_come_from_flags(run, lines, fake_tensorrt):
    # Before the environment.
    moved = run(lines["planned"], "--device=cuda:3", TRT_ET_DEVICE="0", **fake_tensorrt)
    assert moved.returncode == 0, moved.stderr
    assert "on cuda:3" in moved.stderr
    flags = ["--cuda_graphs=off", "--shared_device_memory", "1", "--weight_streaming_budget=auto"]
    plain = run(lines["planned"], *flags, **fake_tensorrt)
    assert plain.returncode == 0, plain.stderr
    refused = {
        "--device=gpu": "option device (TRT_ET_DEVICE) is 'gpu'",
        "--cuda_graphs=yes": "option cuda_graphs (TRT_ET_CUDA_GRAPHS) is 'yes'",
        "--shared_device_memory=2": "shared_device_memory (TRT_ET_SHARED_DEVICE_MEMORY) is '2'",
        **{
            f"--weight_streaming_budget={wrong}": f"is '{wrong}'; expected a number of bytes, a per"
            for wrong in ("101%", "-1%", "%", "5.5%", "half", "-2")
        },
        "--execution_contexts=0": "execution_contexts (TRT_ET_EXECUTION_CONTEXTS) is '0'",
        "--optimization_profile=x": "optimization_profile (TRT_ET_OPTIMIZATION_PROFILE) is 'x'",
        f"--device={'1' * 256}": "--device has 256 characters, at most 255 are taken",
        "--profile_layers": "--profile_layers needs --etdump_path",
    }
    for flag, text in refused.items():
        done = run(lines["planned"], flag, **fake_tensorrt)
        assert (done.returncode, text in done.stderr) == (1, True), (flag, done.stderr)


@pytest.mark.parametrize(
    ("name", "budget", "captured"),
    [
        ("planned", None, True),
        ("planned", "auto", True),  # It was not built for streaming: nothing to stream.
        ("streaming", None, False),  # TensorRT's automatic budget.
        ("streaming", "0", False),
        ("streaming", "512", True),  # All of the weights.
        ("streaming", "100%", True),
        ("streaming", "50%", False),
    ],
)
def test_only_engines_that_stream_their_weights_do_without_graphs(
    run, lines, fake_tensorrt, tmp_path, name, budget, captured
):
    trace = tmp_path / "trace.etdump"
    flags = ["--etdump_path", trace]
    flags += [] if budget is None else [f"--weight_streaming_budget={budget}"]
    done = run(lines[name], *flags, **fake_tensorrt)
    assert done.returncode == 0, done.stderr
    assert (b"launch graph" in trace.read_bytes()) == captured
    assert ("its weights are streamed, which no graph can hold" in done.stderr) == (not captured)


def delegated_events(trace: Path, record: Path | None = None) -> dict[str, Any]:
    """The events of the delegate in the runs, by name."""
    inspector = Inspector(etdump_path=str(trace), etrecord=record and str(record))
    _, execute = inspector.event_blocks
    return {event.name: event for event in execute.events if event.is_delegated_op}


def test_times_of_layers_are_in_the_trace(run, lines, fake_tensorrt, tmp_path):
    trace = tmp_path / "trace.etdump"
    done = run(lines["host"], "--etdump_path", trace, TRT_ET_PROFILE_LAYERS="1", **fake_tensorrt)
    assert done.returncode == 0, done.stderr
    events = delegated_events(trace)
    # The fake's layers take half a millisecond each, in all of the 5 runs: no graph hides one.
    for layer in ("scale", "shift"):
        assert events[layer].perf_data.raw == pytest.approx([0.5] * 5, rel=1e-3)
    assert set(events) == {"h2d", "enqueue", "scale", "shift", "d2h", "wait"}


def test_layers_are_tied_to_the_operators_of_the_model(run, fake_tensorrt, tmp_path):
    record, trace = tmp_path / "line.etrecord", tmp_path / "trace.etdump"
    builder = FakeBuilder(named_layers=True)
    x = (torch.randn(3, 8),)
    program = export(tmp_path, "named", Line(), x, builder=builder, etrecord=record)
    done = run(program, "--etdump_path", trace, "--profile_layers", **fake_tensorrt)
    assert done.returncode == 0, done.stderr
    events = delegated_events(trace, record)
    assert events["mul_0"].op_types == ["aten.mul.Tensor"]
    assert events["add_0"].op_types == ["aten.add.Tensor"]  # Fused with another one.
    (source,) = events["add_0"].stack_traces.values()
    assert "fake_tensorrt.py" in source
    names = bytes(events["add_0"].delegate_debug_metadatas[0])
    assert names == b"[ELEMENTWISE]-[aten_ops.add.Tensor]-[add_0_sum]+[UNARY]-[aten_ops.x]-[x_0]"


def test_a_reference_engine_is_one_layer_in_the_trace(run, programs, tmp_path):
    trace = tmp_path / "trace.etdump"
    done = run(programs["mlp"], "--etdump_path", trace, "--profile_layers")
    assert done.returncode == 0, done.stderr
    times = delegated_events(trace)["reference engine"].perf_data.raw
    assert len(times) == 5
    assert all(0 < time < 1000 for time in times)
