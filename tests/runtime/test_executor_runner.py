"""The native runner: flags, input and output files, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

import trt_et.runtime
from tests.support.native_blobs import patch_program
from tests.support.native_environment import environment
from tests.support.native_programs import Program
from trt_et import TensorRTPartitioner


@pytest.fixture
def run(programs, runner):
    """Run one of the programs."""

    def start(name, *flags, cuda="simulated"):
        return runner("--model_path", programs[name].path, *flags, cuda=cuda)

    return start


@pytest.fixture
def outputs(runner, tmp_path):
    """Run a program file, and read what it writes."""

    def start(path, *flags, cuda="simulated:2"):
        command = ("--model_path", path, "--output_file", tmp_path / "out", *flags)
        done = runner(*command, cuda=cuda)
        assert done.returncode == 0, done.stderr
        files = sorted(tmp_path.glob("out-*.bin"))
        return [np.fromfile(file, dtype=np.float32) for file in files]

    return start


def files(program: Program) -> str:
    return ",".join(map(str, program.input_files()))


def check(found: list[np.ndarray], expected: list[torch.Tensor]) -> None:
    for array, tensor in zip(found, expected, strict=True):
        flat = tensor.detach().numpy().flatten()
        np.testing.assert_allclose(array, flat, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["host", "planned_on_host", "two", "many"])
def test_outputs_agree_with_eager(programs, outputs, name):
    program = programs[name]
    check(outputs(program.path, "--inputs", files(program), "--num_executions=3"), program.outputs)


def test_inputs_are_ones_and_as_large_as_allowed(run):
    done = run("dynamic", "--print_output=summary")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Output 0: Float [8, 4], 128 bytes\n"
    done = run("mlp", "--print_output=none")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Output 2:" in run("many").stdout


def test_a_program_for_a_gpu_that_is_not_there_moves_with_its_memory(programs, run, outputs):
    program = programs["mlp_on_3"]
    done = run("mlp_on_3", cuda="simulated:2")
    assert "TRT_ET_DEVICE=0 moves memory and engines" in done.stderr
    check(outputs(program.path, "--inputs", files(program), "-device=1"), program.outputs)


@pytest.mark.parametrize("name", ["mlp", "channels_last"])
def test_npy_inputs(programs, outputs, tmp_path, name):
    """Their values are in the order of the dimensions, however the input lies in memory."""
    program = programs[name]
    (x,), (expected,) = program.inputs, program.outputs
    np.save(tmp_path / "x.npy", x.numpy().copy(order="C"))
    found = outputs(program.path, "--inputs", tmp_path / "x.npy")
    if name == "channels_last":
        expected = expected.permute(0, 2, 3, 1)
    check(found, [expected])


def test_wrong_npy_inputs(run, tmp_path):
    path = tmp_path / "x.npy"

    def refused(message, *more):
        done = run("mlp", "--inputs", path, *more)
        assert done.returncode == 1
        assert message in done.stderr

    np.save(path, np.ones((2, 8)))
    refused("input 0 is Float [2, 8]; " + f"{path} has the dtype '<f8'")
    np.save(path, np.ones((2, 9), np.float32))
    refused("input 0 is Float [2, 8] at most; it cannot be [2, 9]")
    np.save(path, np.asfortranarray(np.ones((2, 8), np.float32)))
    refused("is in Fortran order")
    np.save(path, np.ones((2, 8), np.float32))
    refused(f"input 0 is to be [1, 8]; {path} has [2, 8]", "--input_sizes=1x8")
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    refused("expected 64 bytes of data")
    path.write_bytes(good + b"x")
    refused("expected 64 bytes of data")
    for length in (0, 5, 9, 40):
        path.write_bytes(good[:length])
        refused("is no .npy file of one array")
    for wrong in (good.replace(b"(2, 8)", b"(2, -)"), good.replace(b"(2, 8)", b"(2,99999999999)")):
        path.write_bytes(wrong)
        refused("is no .npy file of one array")


def test_sizes_of_dynamic_inputs(run, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((5, 8), np.float32))
    (tmp_path / "x.bin").write_bytes(bytes(2 * 8 * 4))
    for flags, batch in (
        (["--input_sizes=3x8"], 3),
        (["--input_sizes="], 8),
        (["--inputs", tmp_path / "x.npy"], 5),
        (["--inputs", tmp_path / "x.bin", "--input_sizes=2x8"], 2),
    ):
        done = run("dynamic", "--print_output=summary", *flags)
        expected = f"Output 0: Float [{batch}, 4], {batch * 16} bytes\n"
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_random_inputs(programs, outputs):
    first, again, other = (
        outputs(programs["mlp"].path, f"--random_inputs={seed}")[0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[:4], first[4:])  # The two rows are not the same ones.


def test_timings(run):
    def lines(*more):
        done = run("mlp", "--print_output=none", *more)
        assert done.returncode == 0, done.stderr
        return list(done.stdout.splitlines())

    assert lines("--num_executions=5") == []
    load, first, rest = lines("--num_executions=101", "--print_timings")
    assert re.fullmatch(r"Load: \d+\.\d us", load)
    assert re.fullmatch(r"First run: \d+\.\d us", first)
    number = r"(\d+\.\d) us"
    found = re.fullmatch(
        f"Next 100 runs: p50 {number}, p90 {number}, p99 {number}, min {number}, max {number}", rest
    )
    assert found is not None, rest
    p50, p90, p99, low, high = map(float, found.groups())
    assert 0 < low <= p50 <= p90 <= p99 <= high
    assert len(lines("--print_timings")) == 2
    warm = lines("--print_timings", "--num_executions=7", "--warm_up=3")
    assert warm[1].startswith("First run: ")
    assert warm[2].startswith("Next 7 runs: ")


def test_cuda_flag_goes_before_the_environment(run):
    done = run("mlp_on_1", "--cuda=simulated:2", cuda="simulated:1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("mlp", {"enqueue"}),  # ExecuTorch's own operators copy.
        ("host", {"h2d", "enqueue", "d2h", "wait"}),
        ("moved", {"peer copy", "enqueue"}),
    ],
)
def test_etdump_has_the_delegates_events(programs, runner, tmp_path, name, events):
    from executorch.devtools import Inspector

    trace = tmp_path / "trace.etdump"
    program = programs["mlp" if name == "moved" else name].path
    if name == "moved":  # The blob says cuda:1, the program's memory is on cuda:0.
        content = program.read_bytes()
        program = tmp_path / "moved.pte"
        program.write_bytes(patch_program(content, b'"device_id":0', b'"device_id":1'))
    done = runner(
        "--model_path", program, "--etdump_path", trace, "--num_executions=3", cuda="simulated:2"
    )
    assert done.returncode == 0, done.stderr
    load, execute = Inspector(etdump_path=str(trace)).event_blocks
    assert [event.name for event in load.events if event.is_delegated_op] == ["load"]
    found = [event for event in execute.events if event.is_delegated_op]
    assert {event.name for event in found} == events
    assert {len(event.perf_data.raw) for event in found} == {3}


def test_weights_outside_of_the_program(runner, outputs, tmp_path):
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()), torch.randn(2, 8)
    program = to_edge_transform_and_lower(
        torch.export.export(model, (x,)),
        partitioner=[TensorRTPartitioner(builder="reference", excluded_ops=["aten.linear"])],
    ).to_executorch(ExecutorchBackendConfig(external_constants=True))
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    program.write_tensor_data_to_file(str(tmp_path))
    (weights,) = tmp_path.glob("*.ptd")
    np.save(tmp_path / "x.npy", x.numpy())
    without = runner("--model_path", path, cuda="simulated")
    assert without.returncode == 1
    assert "in a file of its own (.ptd), name it with --data_path" in without.stderr
    found = outputs(path, "--inputs", tmp_path / "x.npy", "--data_path", weights)
    check(found, [model(x)])


def test_memory(run):
    done = run("mlp_on_1", "--print_output=none", "--print_memory", cuda="simulated:2")
    assert done.returncode == 0, done.stderr
    host, gpu, engines = done.stdout.splitlines()
    assert re.fullmatch(r"Planned memory on the host: \d+ bytes", host)
    assert re.fullmatch(r"Planned memory on cuda:1: [1-9]\d* bytes", gpu)
    (engine,) = json.loads(engines.removeprefix("Engines: "))
    assert engine["device"] == 1
    assert engine["engine_bytes"] > 0
    assert engine["profile"] is None  # A reference engine has none.


def test_memory_is_where_the_user_moves_it(programs, runner):
    flags = ("--print_output=none", "--print_memory")
    path = programs["mlp_on_1"].path
    done = runner("--model_path", path, *flags, cuda="simulated:2", TRT_ET_DEVICE="0")
    assert "Planned memory on cuda:0" in done.stdout
    assert "cuda:1" not in done.stdout


@pytest.mark.parametrize("name", ["a,b.bin", ",", "a,,b,"])
def test_a_comma_in_the_name_of_an_input_file(programs, outputs, tmp_path, name):
    program = programs["mlp"]
    (tmp_path / name).write_bytes(program.inputs[0].numpy().tobytes())
    escaped = str(tmp_path / name).replace(",", "\\,")
    check(outputs(program.path, "--inputs", escaped), program.outputs)


@pytest.mark.parametrize("where", ["full", "closed", "a closed pipe"])
def test_an_output_that_does_not_arrive_is_a_failure(programs, tmp_path, where):
    command = [trt_et.runtime.runner_path(), "--model_path", programs["mlp"].path]
    command += ["--output_file", tmp_path / "out"]
    if where == "closed":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("wb") as full, os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            list(map(str, command)),
            env=environment(TRT_ET_CUDA="simulated"),
            stdout=pipe if where == "a closed pipe" else full,
            stderr=subprocess.PIPE,
            restore_signals=False,  # Python ignores SIGPIPE, and so does the runner then.
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "executor_runner: the standard output cannot be written: " in done.stderr
    assert (tmp_path / "out-0.bin").stat().st_size == 2 * 4 * 4


def test_help(runner):
    done = runner("--help")
    assert done.returncode == 0
    for flag in ("input_sizes", "random_inputs", "warm_up", "runtime_cache"):
        assert f"--{flag}" in done.stdout
    bare = runner()
    assert (bare.returncode, bare.stdout, bare.stderr) == (1, "", done.stdout)
    for flag in ("model_path", "inputs", "output_file", "num_executions", "method_name", "cuda"):
        assert f"--{flag}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no_such_flag"], "no_such_flag"),
        (["stray"], "unexpected argument 'stray'"),
        (["--data_path=/nowhere.ptd"], "data file /nowhere.ptd cannot be opened"),
        (["--data_path=/proc/self/exe"], "/proc/self/exe is not a .ptd file"),
        (["--num_executions=0"], "--num_executions is '0'"),
        (["--num_executions=-1"], "--num_executions is '-1'"),
        (["--num_executions=2x"], "--num_executions is '2x'"),
        (["--warm_up=-1"], "--warm_up is '-1'; expected a number from 0"),
        (["--random_inputs=x"], "--random_inputs is 'x'"),
        (["--random_inputs=1", "--inputs=x.bin"], "--random_inputs and --inputs exclude"),
        (["--input_sizes=2x8x"], "--input_sizes is '2x8x'; expected one like 2x8,4"),
        (["--input_sizes=-2x8"], "--input_sizes is '-2x8'"),
        (["--input_sizes=2,8"], "has 1 tensor input(s), --input_sizes names 2"),
        (["--input_sizes=2"], "input 0 is Float [2, 8] at most; it cannot be [2]"),
        (["--input_sizes=3x8"], "input 0 is Float [2, 8] at most; it cannot be [3, 8]"),
        (["--input_sizes=1x8"], "input 0 of the sizes [1, 8] is refused"),
        (["--runtime_cache=kernels"], "--runtime_cache is refused: option runtime_cache"),
        (["--inputs=/nowhere.npy"], "/nowhere.npy: No such file"),
        (["--print_output=some"], "expected none, summary or all"),
        (["--model_path"], "requires an argument"),
        (["--model_path=/nowhere.pte"], "/nowhere.pte cannot be opened"),
        (["--method_name=backward"], "no method 'backward'; its first is 'forward'"),
        (["--inputs=a.bin,b.bin"], "has 1 tensor input(s), --inputs names 2"),
        (["--inputs=/nowhere.bin"], "/nowhere.bin: No such file"),
        (["--cuda=fake"], "TRT_ET_CUDA is 'fake'"),
        (["--cuda=simulated:0"], "TRT_ET_CUDA is 'simulated:0'"),
        (["--cuda=simulated:99999999999"], "TRT_ET_CUDA is 'simulated:99999999999'"),
        (["--etdump_path=/nowhere/trace"], "etdump file /nowhere/trace: No such file"),
        (["--output_file=/nowhere/out"], "/nowhere/out-0.bin: No such file"),
    ],
)
def test_wrong_usage(run, arguments, message):
    done = run("mlp", *arguments)
    assert done.returncode == 1
    assert message in done.stderr


def test_input_file_of_another_size(run, tmp_path):
    for size in (0, 63, 65):
        (tmp_path / "x.bin").write_bytes(bytes(size))
        done = run("mlp", "--inputs", tmp_path / "x.bin")
        assert done.returncode == 1
        expected = f"input 0 is Float [2, 8]: expected 64 bytes, {tmp_path}/x.bin has {size}"
        assert expected in done.stderr


def test_without_a_driver_the_runner_says_so(run):
    done = run("mlp", cuda="real")
    assert done.returncode == 1
    assert "no NVIDIA driver (libcuda.so.1 not found)" in done.stderr


def test_without_a_driver_and_a_setting_reference_engines_are_simulated(programs, run, tmp_path):
    done = run("mlp_on_3", "--print_output=summary", cuda=None)
    assert (done.returncode, done.stdout) == (0, "Output 0: Float [2, 4], 32 bytes\n")
    (line,) = [each for each in done.stderr.splitlines() if "cpuinfo_utils" not in each]
    assert "simulated GPUs are used: no NVIDIA driver (libcuda.so.1 not found)" in line
