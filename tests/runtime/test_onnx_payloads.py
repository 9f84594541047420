"""ONNX payloads on simulated GPUs: onnxruntime runs what ``builder="onnx"`` exports."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary

from tests.support.models import Function, make
from tests.support.native_programs import Program, export
from tests.support.programs.pt2e import quantize
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.engine_info import decode_blob, encode_blob
from trt_et.inspection import read_program

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

Stock = Callable[..., dict[str, Any]]
Runner = Callable[..., subprocess.CompletedProcess[str]]

ROWS = [(torch.tensor([at]), torch.randn(1, 2, 1, 8)) for at in (3, 4, 15, 4, 0, 7)]
SHARED = torch.nn.Linear(64, 32)


class Cached(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 2, 16, 8))

    def forward(self, position: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(2, position, rows)
        return self.cache * 2


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Program]:
    folder = tmp_path_factory.mktemp("networks")
    mlp, (x,) = make("mlp")
    quantized = quantize(mlp, (x,)).module()
    batch = ({0: torch.export.Dim("batch", min=1, max=8)},)
    several: dict[str, Any] = {
        **{name: (make(name), {}) for name in ("mlp", "cnn", "vit", "outputs", "order")},
        "channels_last": (make("channels_last"), {}),
        "two_engines": (make("split"), {"excluded_ops": ["aten.cumsum.default"]}),
        "second_gpu": ((mlp, (x,)), {"device": "cuda:1"}),
        "host": ((mlp, (x,)), {"host": True}),
        "dynamic": ((mlp, (x,)), {"dynamic": batch, "run": (torch.randn(7, 16),)}),
        "float16": ((mlp, (x,)), {"precision": "float16"}),
        # A function: no module that was exported has eval().
        "int8": ((Function(lambda x: quantized(x)), (x,)), {}),
    }
    return {
        name: export(folder, name, model, inputs, builder="onnx", **options)
        for name, ((model, inputs), options) in several.items()
    }


NAMES = (
    *("mlp", "cnn", "vit", "outputs", "order", "channels_last", "two_engines", "second_gpu"),
    *("host", "dynamic", "float16", "int8"),
)


def tolerance(name: str) -> dict[str, float]:
    return {"rtol": 1e-2, "atol": 1e-2} if name == "float16" else {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def results(networks: Mapping[str, Program], stock: Stock) -> dict[str, Any]:
    jobs = [
        {"program": str(networks[name].path), "inputs": networks[name].inputs} for name in NAMES
    ]
    facts = stock(*jobs, TRT_ET_CUDA="simulated:2")
    assert not any(facts["end"]["live"])  # The GPUs' memory is free again.
    return dict(zip(NAMES, facts["results"], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_outputs_in_the_stock_runtime_agree_with_eager(
    networks: Mapping[str, Program], results: dict[str, Any], name: str
) -> None:
    result, program = results[name], networks[name]
    assert "error" not in result, result
    for found, expected in zip(result["outputs"], program.outputs, strict=True):
        torch.testing.assert_close(found, expected, **tolerance(name))


def test_weights_are_beside_the_models(networks: Mapping[str, Program]) -> None:
    program = read_program(networks["vit"].path.read_bytes())
    (delegate,) = program.methods[0].delegates
    model, _ = make("vit")
    # The layers of its encoder begin as copies of one.
    large = {p.detach().numpy().tobytes() for p in model.parameters() if p.nbytes >= 1024}
    assert sum(size for _, size in program.named_data) >= sum(map(len, large))
    assert len(decode_blob(delegate.blob).engine) < 0.2 * sum(map(len, large))


def test_a_call_copies_what_one_of_an_engine_does(results: dict[str, Any]) -> None:
    before, after = results["mlp"]["before"], results["mlp"]["after"]
    x = make("mlp")[1][0]
    assert after["bytes_h2d"] - before["bytes_h2d"] == x.nbytes
    assert after["launches"] - before["launches"] == 1


def test_sizes_change_from_call_to_call(networks: Mapping[str, Program], stock: Stock) -> None:
    model, _ = make("mlp")
    calls = [(torch.randn(batch, 16),) for batch in (1, 8, 2, 5)]
    path = str(networks["dynamic"].path)
    (result,) = stock({"program": path, "calls": calls}, TRT_ET_CUDA="simulated:1")["results"]
    for (x,), (found,) in zip(calls, result["every"], strict=True):
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)


def test_a_cache_keeps_the_rows_of_the_calls_before(tmp_path: Path, stock: Stock) -> None:
    with torch.no_grad():
        manager = to_edge_transform_and_lower(
            torch.export.export(Cached(), ROWS[0]),
            partitioner=[TensorRTPartitioner(builder="onnx")],
        )
        planning = TensorRTMemoryPlanningPass()
        config = ExecutorchBackendConfig(
            memory_planning_pass=planning, enable_non_cpu_memory_planning=True
        )
        path = tmp_path / "cached.pte"
        path.write_bytes(manager.to_executorch(config).buffer)
    facts = stock({"program": str(path), "calls": ROWS}, TRT_ET_CUDA="simulated:1")
    (result,) = facts["results"]
    assert "error" not in result, result
    model = Cached()
    for call, (found,) in zip(ROWS, result["every"], strict=True):
        torch.testing.assert_close(found, model(*call))


def test_methods_share_weights_and_run(tmp_path: Path, runner: Runner) -> None:
    x = torch.randn(4, 64)
    modules = {
        "first": torch.nn.Sequential(SHARED, torch.nn.ReLU()).eval(),
        "second": torch.nn.Sequential(SHARED, torch.nn.Tanh()).eval(),
    }
    manager = to_edge_transform_and_lower(
        {name: torch.export.export(module, (x,)) for name, module in modules.items()},
        partitioner={name: [TensorRTPartitioner(builder="onnx")] for name in modules},
    )
    path = tmp_path / "two.pte"
    path.write_bytes(manager.to_executorch().buffer)
    assert [size for _, size in read_program(path.read_bytes()).named_data] == [
        SHARED.weight.nbytes
    ]
    (tmp_path / "x").write_bytes(x.numpy().tobytes())
    flags = ["--method_name", "first,second", "--inputs", tmp_path / "x"]
    output = tmp_path / "out"
    done = runner("--model_path", path, *flags, "--output_file", output, cuda="simulated:1")
    assert done.returncode == 0, done.stderr
    for index, module in enumerate(modules.values()):
        expected = module(x).detach().numpy()
        found = np.fromfile(tmp_path / f"out-{index}-0.bin", dtype=np.float32)
        np.testing.assert_allclose(found, expected.flatten(), rtol=1e-4, atol=1e-5)


def with_engine(old: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The program of one delegate with another engine of the same size."""
    (delegate,) = read_program(old).methods[0].delegates
    decoded = decode_blob(delegate.blob)
    blob = encode_blob(change(bytes(decoded.engine)), decoded.info)
    assert len(blob) == len(delegate.blob)
    return old.replace(bytes(delegate.blob), blob)


@pytest.fixture(scope="module")
def refusals(
    networks: Mapping[str, Program], stock: Stock, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("damaged")
    program = networks["mlp"]
    data = program.path.read_bytes()
    (key, *_) = (key for key, _ in read_program(data).named_data)
    flipped = bytearray(data)
    flipped[data.index(b"TR01") + 1000] ^= 1
    weight = bytearray(data)
    weight[data.index(deserialize_pte_binary(data).named_data.buffers[0]) + 1000] ^= 1
    damaged = {
        "a bit": bytes(flipped),
        "a bit of a weight": bytes(weight),
        "no model": with_engine(data, lambda model: b"\xff" * len(model)),
        "another output": with_engine(data, lambda model: model.replace(b"output0", b"outputX")),
        "another input": with_engine(data, lambda model: model.replace(b"input0", b"inputX")),
        "another weight": with_engine(
            data, lambda model: model.replace(key.encode(), key[:-1].encode() + b"x")
        ),
        "no such data": data.replace(key.encode(), key[:-1].encode() + b"x", 1),
    }
    jobs = []
    for index, content in enumerate(damaged.values()):
        path = folder / f"{index}.pte"
        path.write_bytes(content)
        jobs.append({"program": str(path), "inputs": program.inputs})
    results = stock(*jobs, TRT_ET_CUDA="simulated:1")["results"]
    return {name: result["reason"] for name, result in zip(damaged, results, strict=True)}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a bit", "checksum"),
        ("a bit of a weight", "bytes is damaged"),
        ("no model", "onnxruntime refuses the ONNX model: "),
        ("another output", "ONNX model has no output 'output0'"),
        ("another input", "ONNX model has no input 'input0'"),
        ("another weight", "onnxruntime refuses the ONNX model: "),
        ("no such data", "the program has no usable named data trt_et_onnx_"),
    ],
)
def test_what_is_damaged_is_refused_in_one_sentence(
    refusals: dict[str, str], name: str, reason: str
) -> None:
    assert reason in refusals[name]
    assert "\n" not in refusals[name]


def test_a_library_that_does_not_load_is_named(
    networks: Mapping[str, Program], stock: Stock, tmp_path: Path
) -> None:
    job = {"program": str(networks["mlp"].path), "inputs": networks["mlp"].inputs}
    named = str(tmp_path / "missing.so")
    facts = stock(job, TRT_ET_CUDA="simulated:1", TRT_ET_ONNXRUNTIME_LIBRARY=named)
    assert "TRT_ET_ONNXRUNTIME_LIBRARY names a library" in facts["results"][0]["reason"]


def test_without_onnxruntime_the_command_that_installs_it_is_named(
    networks: Mapping[str, Program], runner: Runner, tmp_path: Path
) -> None:
    """The package is looked for beside ExecuTorch's, which is copied to another place."""
    import executorch

    (package,) = executorch.__path__
    shutil.copytree(Path(package) / "lib", tmp_path / "executorch/lib")
    library = str(tmp_path / "executorch/lib")
    done = runner("--model_path", networks["mlp"].path, cuda="simulated:1", LD_LIBRARY_PATH=library)
    assert done.returncode == 1
    assert "through onnxruntime, which is not here: pip install onnxruntime" in done.stderr
