"""ONNX payloads on simulated GPUs: onnxruntime runs what ``builder="onnx"`` exports."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary

from tests.support.models import Function, make
from tests.support.native_programs import export
from tests.support.programs.pt2e import quantize
from trt_et import TensorRTPartitioner
from trt_et.engine_info import decode_blob, encode_blob
from trt_et.inspection import read_program

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

SHARED = torch.nn.Linear(64, 32)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    mlp, (x,) = make("mlp")
    quantized = quantize(mlp, (x,)).module()
    batch = ({0: torch.export.Dim("batch", min=1, max=8)},)
    several: dict[str, Any] = {
        **{name: (make(name), {}) for name in ("mlp", "vit", "outputs", "order", "channels_last")},
        "two_engines": (make("split"), {"excluded_ops": ["aten.cumsum.default"]}),
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
    *("mlp", "vit", "outputs", "order", "channels_last", "two_engines", "host", "dynamic"),
    *("float16", "int8"),
)
CALLS = [(torch.randn(batch, 16),) for batch in (1, 8, 2, 5)]


def with_engine(old: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The program of one delegate with another engine of the same size."""
    (delegate,) = read_program(old).methods[0].delegates
    decoded = decode_blob(delegate.blob)
    blob = encode_blob(change(bytes(decoded.engine)), decoded.info)
    assert len(blob) == len(delegate.blob)
    return old.replace(bytes(delegate.blob), blob)


def with_bit(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def damaged(data: bytes) -> dict[str, bytes]:
    """A program with damage, by the reason that must be given."""
    (key, *_) = (key.encode() for key, _ in read_program(data).named_data)
    weight = data.index(deserialize_pte_binary(data).named_data.buffers[0])
    refused = "onnxruntime refuses the ONNX model: "
    return {
        "checksum": with_bit(data, data.index(b"TR01") + 1000),
        "bytes is damaged": with_bit(data, weight + 1000),
        refused: with_engine(data, lambda model: b"\xff" * len(model)),
        "ONNX model has no output 'output0'": with_engine(
            data, lambda model: model.replace(b"output0", b"outputX")
        ),
        "ONNX model has no input 'input0'": with_engine(
            data, lambda model: model.replace(b"input0", b"inputX")
        ),
        refused.strip(): with_engine(data, lambda model: model.replace(key, key[:-1] + b"x")),
        "the program has no usable named data trt_et_onnx_": data.replace(key, key[:-1] + b"x", 1),
    }


def tolerance(name: str) -> dict[str, float]:
    return {"rtol": 1e-2, "atol": 1e-2} if name == "float16" else {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def results(networks, stock, tmp_path_factory):
    """What happened to each program, to the one of several sizes, and to the damaged ones."""
    folder = tmp_path_factory.mktemp("damaged")
    jobs = {
        name: {"program": str(networks[name].path), "inputs": networks[name].inputs}
        for name in NAMES
    }
    jobs["sizes"] = {"program": str(networks["dynamic"].path), "calls": CALLS}
    for reason, content in damaged(networks["mlp"].path.read_bytes()).items():
        path = folder / f"{len(jobs)}.pte"
        path.write_bytes(content)
        jobs[reason] = jobs["mlp"] | {"program": str(path)}
    facts = stock(*jobs.values(), TRT_ET_CUDA="simulated:1")
    assert not any(facts["end"]["live"])  # The GPU's memory is free again.
    return dict(zip(jobs, facts["results"], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_outputs_in_the_stock_runtime_agree_with_eager(networks, results, name):
    result, program = results[name], networks[name]
    assert "error" not in result, result
    for found, expected in zip(result["outputs"], program.outputs, strict=True):
        torch.testing.assert_close(found, expected, **tolerance(name))


def test_weights_are_beside_the_models(networks):
    program = read_program(networks["vit"].path.read_bytes())
    (delegate,) = program.methods[0].delegates
    model, _ = make("vit")
    # The layers of its encoder begin as copies of one.
    large = {p.detach().numpy().tobytes() for p in model.parameters() if p.nbytes >= 1024}
    assert sum(size for _, size in program.named_data) >= sum(map(len, large))
    assert len(decode_blob(delegate.blob).engine) < 0.2 * sum(map(len, large))


def test_a_call_copies_what_one_of_an_engine_does(results):
    before, after = results["mlp"]["before"], results["mlp"]["after"]
    x = make("mlp")[1][0]
    assert after["bytes_h2d"] - before["bytes_h2d"] == x.nbytes
    assert after["launches"] - before["launches"] == 1


def test_sizes_change_from_call_to_call(results):
    model, _ = make("mlp")
    for (x,), (found,) in zip(CALLS, results["sizes"]["every"], strict=True):
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)


def test_what_is_damaged_is_refused_in_one_sentence(networks, results):
    for reason in damaged(networks["mlp"].path.read_bytes()):
        assert reason in results[reason]["reason"]
        assert "\n" not in results[reason]["reason"]


def test_methods_share_weights_and_run(tmp_path, runner):
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


def test_a_library_that_does_not_load_is_named(networks, stock, tmp_path):
    job = {"program": str(networks["mlp"].path), "inputs": networks["mlp"].inputs}
    named = str(tmp_path / "missing.so")
    facts = stock(job, TRT_ET_CUDA="simulated:1", TRT_ET_ONNXRUNTIME_LIBRARY=named)
    assert "TRT_ET_ONNXRUNTIME_LIBRARY names a library" in facts["results"][0]["reason"]


def test_without_onnxruntime_the_command_that_installs_it_is_named(networks, runner, tmp_path):
    """The package is looked for beside ExecuTorch's, which is copied to another place."""
    import executorch

    (package,) = executorch.__path__
    shutil.copytree(Path(package) / "lib", tmp_path / "executorch/lib")
    library = str(tmp_path / "executorch/lib")
    done = runner("--model_path", networks["mlp"].path, cuda="simulated:1", LD_LIBRARY_PATH=library)
    assert done.returncode == 1
    assert "through onnxruntime, which is not here: pip install onnxruntime" in done.stderr
