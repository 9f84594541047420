"""Our description of onnxruntime's C interface, against the library that pip installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.native_environment import environment

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

FLOAT = onnx.TensorProto.FLOAT


def write_model(folder: Path, weight: np.ndarray) -> None:
    """Write ``y = (x + z) @ weight``; the weight is in a file that only its name knows."""
    stored = onnx.numpy_helper.from_array(weight, "weight")
    onnx.external_data_helper.set_external_data(stored, "weight_file", 0, weight.nbytes)
    (folder / "weight").write_bytes(stored.raw_data)
    stored.ClearField("raw_data")
    stored.data_location = onnx.TensorProto.EXTERNAL
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Add", ["x", "z"], ["sum"]),
            onnx.helper.make_node("MatMul", ["sum", "weight"], ["y"]),
        ],
        "graph",
        [onnx.helper.make_tensor_value_info(name, FLOAT, ["n", 4]) for name in "xz"],
        [onnx.helper.make_tensor_value_info("y", FLOAT, ["n", 3])],
        [stored],
    )
    opset = onnx.helper.make_opsetid("", 20)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    (folder / "model").write_bytes(model.SerializeToString())


def test_each_described_function_does_what_its_name_tells(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    write_model(tmp_path, weight)
    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.call_onnxruntime", library, "model", "weight"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["not called"] == []
    assert facts["inputs"] == [["x", 1, [-1, 4]], ["z", 1, [-1, 4]]]
    assert facts["outputs"] == [["y", 1, [-1, 3]]]
    element, dims, values = facts["run"]
    assert (element, dims) == (1, [2, 3])
    expected = np.arange(0, 16, 2, dtype=np.float32).reshape(2, 4) @ weight
    np.testing.assert_allclose(np.reshape(values, (2, 3)), expected, rtol=1e-5, atol=1e-6)
    assert "protobuf" in facts["refused model"].lower()
    assert "graph_optimization_level" in facts["refused level"]
    assert facts["threads"] == 2  # And the caller's.
    # A session's own threads and caches move the count by some bytes.
    most = {"session": 200, "description": 16, "run": 16, "refusal": 16}
    assert all(facts["leaked"][name] < limit for name, limit in most.items()), facts["leaked"]
