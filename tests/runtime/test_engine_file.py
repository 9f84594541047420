"""An engine file becomes a part of a program, with nothing of TensorRT and no GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

from tests.support.lowering import blobs
from trt_et import BlobError, EngineFile, OptionError, TensorRTPartitioner
from trt_et.engine_info import decode_blob

PLAN = (
    b"fake\nweights 64\nscratch 64\ninput a float32 2,4\ninput b float32 2,4\n"
    b"output sum float32 2,4\noutput twice float32 2,4\nsum sum a b\nscale twice a 2\n"
)


def engine(folder: Path, version: tuple[int, ...] = (11, 1, 0, 106)) -> Path:
    path = folder / "two.engine"
    path.write_bytes(b"ftrt".ljust(24, b"\0") + bytes(version).ljust(8, b"\0") + PLAN)
    return path


class Around(torch.nn.Module):
    """The engine's inputs in another order than the program's, and work on both of its sides."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        shape = ((2, 4), torch.float32)
        self.engine = EngineFile(
            path,
            inputs=["b", "a"],
            outputs={"twice": shape, "sum": shape},
            target_platform="linux_x86_64",
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        twice, total = self.engine(torch.sinh(x), y)
        return torch.sinh(twice) - total


def test_the_program_runs_the_engine(runner, tmp_path, fake_tensorrt):
    (tmp_path / "model.pte").write_bytes(lowered_without_others(tmp_path))
    x, y = np.linspace(-1, 1, 8, dtype=np.float32), np.linspace(0, 3, 8, dtype=np.float32)
    x.tofile(tmp_path / "x"), y.tofile(tmp_path / "y")
    done = runner(
        f"--model_path={tmp_path}/model.pte",
        f"--inputs={tmp_path}/x,{tmp_path}/y",
        f"--output_file={tmp_path}/out",
        cuda="simulated:1",
        **fake_tensorrt,
    )
    assert done.returncode == 0, done.stderr
    found = np.fromfile(tmp_path / "out-0.bin", dtype=np.float32)
    np.testing.assert_allclose(found, np.sinh(2 * y) - (np.sinh(x) + y), rtol=1e-5)


def lowered_without_others(folder: Path) -> bytes:
    """The program with no engine but the file's."""
    exported = torch.export.export(Around(engine(folder)), (torch.ones(2, 4), torch.ones(2, 4)))
    sinh, sub = torch.ops.aten.sinh, torch.ops.aten.sub
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=[sinh, sub])
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    assert len(partitioner.report.partitions) == 1
    return bytes(manager.to_executorch().buffer)


def test_the_blob_tells_what_the_file_and_its_user_tell(tmp_path):
    shape = ((2, 4), torch.float32)
    module = EngineFile(
        engine(tmp_path, (10, 3, 0, 26)),
        inputs=["a", "b"],
        outputs={"sum": shape, "twice": shape},
        device=1,
        target_platform="linux_aarch64",
        compute_capabilities=["8.7"],
    )
    exported = torch.export.export(module, (torch.ones(2, 4), torch.ones(2, 4)))
    manager = to_edge_transform_and_lower(exported, partitioner=[TensorRTPartitioner()])
    (blob,) = blobs(bytes(manager.to_executorch().buffer))
    info = decode_blob(blob).info
    assert bytes(decode_blob(blob).engine) == engine(tmp_path, (10, 3, 0, 26)).read_bytes()
    assert (info.builder, info.library_version) == ("tensorrt", "10.3.0.26")
    assert (info.device_id, info.compute_capabilities) == (1, ("8.7",))
    assert info.target_platform == "linux_aarch64"
    assert [(b.name, b.shape, b.is_input) for b in info.bindings] == [
        ("a", (2, 4), True),
        ("b", (2, 4), True),
        ("sum", (2, 4), False),
        ("twice", (2, 4), False),
    ]


@pytest.mark.parametrize("content", [b"", b"ftrt", b"PK\3\4" + bytes(60), b"ftrt\1" + bytes(60)])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(OptionError, match="is no TensorRT engine"):
        EngineFile(path, inputs=["x"], outputs={})


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"device": 128}, "128"),
        ({"inputs": ["a", "a"]}, "same name"),
        ({"outputs": {"sum": ((2, -1), torch.float32)}}, "sum"),
        ({"outputs": {"sum": ((2, 4), torch.complex64)}}, "complex64"),
    ],
)
def test_facts_that_no_engine_has_are_refused_when_the_module_is_made(tmp_path, facts, message):
    given = {"inputs": ["a"], "outputs": {"sum": ((2, 4), torch.float32)}}
    with pytest.raises(BlobError, match=message):
        EngineFile(engine(tmp_path), **{**given, **facts})
