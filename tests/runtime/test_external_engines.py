"""Engines beside the program (.ptd): Torch-TensorRT's ``external_engine_data``, and ours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir._serialize._cord import Cord
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

from tests.support.fake_tensorrt import FakeBuilder, Line, upstream_document
from tests.support.native_blobs import pack
from tests.support.native_environment import environment
from tests.support.native_programs import export
from tests.support.python_process import run_forked
from trt_et import TensorRTPartitioner
from trt_et.inspection import inspect_file

X = torch.arange(16, dtype=torch.float32).reshape(2, 8)
MISSING = "the engine 'the engine' is in a file of its own beside the program (.ptd)"
RUN = """
import sys
import torch
import trt_et.runtime
trt_et.runtime.load("simulated")
from executorch.runtime import Runtime
from trt_et.runtime.explain import explained_errors
data = sys.argv[2] if len(sys.argv) > 2 else None
with explained_errors():
    program = Runtime.get().load_program(sys.argv[1], data_path=data)
    method = program.load_method("forward")
    print(method.execute([torch.arange(16, dtype=torch.float32).reshape(2, 8)])[0].sum().item())
"""


def written(path, named):
    """A .ptd file of these bytes by name."""
    entries = {name: DataEntry(i, 16, None) for i, name in enumerate(named)}
    payload = DataPayload(list(named.values()), entries)
    path.write_bytes(bytes(FlatTensorSerializer().serialize(payload)))
    return path


def read(path):
    payload = FlatTensorSerializer().deserialize(Cord(path.read_bytes()))
    return {name: payload.buffers[entry.buffer_index] for name, entry in payload.named_data.items()}


class ExternalBuilder(FakeBuilder):
    """Writes a blob without an engine, as Torch-TensorRT does, and keeps the engine."""

    engine = b""

    def build(self, request):
        x, y = request.program.bindings
        self.engine = self.plan(x, y).encode()
        document = {**upstream_document(request), "engine_key": "the engine"}
        return pack(document, b"", checksum=False)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    builder, folder = ExternalBuilder(), tmp_path_factory.mktemp("external")
    exported = export(folder, "external", Line(), (X,), builder=builder)
    assert b"scale y x" not in exported.path.read_bytes()
    written(folder / "engines.ptd", {"the engine": builder.engine})
    return exported


def test_it_runs_in_the_runner_with_its_file(program, runner, fake_tensorrt, tmp_path):
    data = program.path.with_name("engines.ptd")
    inputs = ",".join(map(str, program.input_files()))
    flags = ("--model_path", program.path, "--inputs", inputs, "--output_file", tmp_path / "out")
    done = runner(*flags, "--data_path", data, cuda="simulated", **fake_tensorrt)
    assert done.returncode == 0, done.stderr
    found = np.fromfile(tmp_path / "out-0.bin", dtype=np.float32)
    np.testing.assert_array_equal(found, (2 * X + 1).numpy().flatten())
    without = runner(*flags, cuda="simulated", **fake_tensorrt)
    assert without.returncode == 1
    assert MISSING in without.stderr


def test_it_runs_in_the_stock_runtime_with_its_file(program, fake_tensorrt, tmp_path):
    data = str(program.path.with_name("engines.ptd"))
    env = environment(**fake_tensorrt)
    done = run_forked(RUN, str(program.path), data, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == (2 * X + 1).sum().item()
    without = run_forked(RUN, str(program.path), cwd=tmp_path, env=env)
    assert without.returncode != 0
    assert MISSING in without.stderr


def test_inspect_names_the_engine_that_is_elsewhere(program):
    (delegate,) = inspect_file(program.path).methods[0].delegates
    assert not delegate.problem
    assert "the engine is in a .ptd file: the engine" in " ".join(delegate.row(0))


def linear(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(8, 4)


def exported_beside(folder, module, x=X):
    """A program of ours, and its file."""
    folder.mkdir()
    program = torch.export.export(module, (x,))
    partitioner = TensorRTPartitioner(builder="reference", external_engines="engines")
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch()
    manager.save(str(folder / "model.pte"))
    manager.write_tensor_data_to_file(folder)
    return folder / "model.pte", folder / "engines.ptd"


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return exported_beside(tmp_path_factory.mktemp("ours") / "first", linear(0))


def run_stock(path, data, folder):
    return run_forked(RUN, str(path), str(data), cwd=folder, env=environment())


def test_a_replaced_file_of_the_same_interface_runs(ours, tmp_path):
    """An update over the air: the program stays, its engines are new."""
    path, data = ours
    _, newer = exported_beside(tmp_path / "newer", linear(1))
    for seed, file in ((0, data), (1, newer)):
        done = run_stock(path, file, tmp_path)
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) == pytest.approx(linear(seed)(X).sum().item(), rel=1e-5)


def test_the_runner_takes_the_file(ours, runner, tmp_path):
    path, data = ours
    X.numpy().tofile(tmp_path / "x.bin")
    flags = ("--model_path", path, "--inputs", tmp_path / "x.bin")
    flags = (*flags, "--output_file", tmp_path / "out")
    assert runner(*flags, "--data_path", data, cuda="simulated").returncode == 0
    found = np.fromfile(tmp_path / "out-0.bin", dtype=np.float32)
    np.testing.assert_allclose(found, linear(0)(X).detach().numpy().flatten(), rtol=1e-5)
    without = runner(*flags, cuda="simulated")
    assert without.returncode == 1
    assert "is in a file of its own beside the program (.ptd)" in without.stderr


def test_programs_may_share_a_file_with_data_of_others(ours, tmp_path):
    other, others = exported_beside(tmp_path / "other", linear(2), torch.ones(3, 8))
    both = {"something else": b"data", **read(others), **read(ours[1])}
    shared = written(tmp_path / "shared.ptd", both)
    for path in (ours[0], other):
        assert not inspect_file(path, data=shared).problems
    done = run_stock(ours[0], shared, tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(linear(0)(X).sum().item(), rel=1e-5)


def test_a_file_that_does_not_fit_is_refused(ours, tmp_path):
    path, _ = ours
    _, other = exported_beside(tmp_path / "other", linear(1), torch.ones(3, 8))
    done = run_stock(path, other, tmp_path)
    assert done.returncode != 0
    assert "load the program with the file of its export" in done.stderr
    # Named as ours by hand: its inputs are looked at.
    (key,) = (d.engine.engine_key for d in inspect_file(path).methods[0].delegates)
    (others,) = (
        d.engine.engine_key for d in inspect_file(tmp_path / "other/model.pte").methods[0].delegates
    )
    renamed = other.read_bytes().replace(others.encode(), key.encode())
    other.write_bytes(renamed)
    done = run_stock(path, other, tmp_path)
    assert done.returncode != 0
    assert "has other inputs or outputs than the program" in done.stderr
    assert "other inputs or outputs" in " ".join(inspect_file(path, data=other).problems)


TRY = """
import sys
import trt_et.runtime
trt_et.runtime.load("simulated")
from executorch.runtime import Runtime
for data in sys.argv[2:]:
    try:
        Runtime.get().load_program(sys.argv[1], data_path=data).load_method("forward")
        print("loaded")
    except RuntimeError as error:
        print(trt_et.runtime.last_error() or error)
"""


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


WRONG = {
    "engine blob is corrupt: checksum": lambda e, f: (flipped(e, 20), f),
    "checksum 0x": lambda e, f: (e, flipped(f, 40)),
    "lies outside": lambda e, f: (e[:-1], f),
    "bytes too many": lambda e, f: (e + b"\0", f),
    "front has": lambda e, f: (e, f + bytes(16)),
    "its header alone needs 32": lambda e, f: (e, b""),
    "not an engine blob": lambda e, f: (e, f[::-1]),
    "has no checksum": lambda e, f: (e, None),
}


def test_a_damaged_file_is_refused(ours, tmp_path):
    """Ours, with an engine or a front that is not the other's; by the runtime and by inspect."""
    path, data = ours
    named = read(data)
    (key,) = (name for name in named if not name.endswith("_front"))
    names = (key, f"{key}_front")
    parts = [named[name] for name in names]
    files = []
    for change in WRONG.values():
        found = {n: p for n, p in zip(names, change(*parts), strict=True) if p is not None}
        files.append(written(tmp_path / f"{len(files)}.ptd", found))
        assert inspect_file(path, data=files[-1]).problems
    done = run_forked(TRY, str(path), *map(str, files), cwd=tmp_path, env=environment())
    lines = done.stdout.splitlines()
    assert len(lines) == len(WRONG), done.stderr
    for expected, line in zip(WRONG, lines, strict=True):
        assert f"the engine '{key}' in the .ptd file" in line
        assert expected in line


def test_a_file_that_is_cut_off_is_refused(ours, program, fake_tensorrt, tmp_path):
    """Also Torch-TensorRT's, whose engine nothing checks."""
    for path, data in (ours, (program.path, program.path.with_name("engines.ptd"))):
        content = data.read_bytes()
        files = [tmp_path / f"{size}.ptd" for size in range(0, len(content), len(content) // 8)]
        for file in files:
            file.write_bytes(content[: int(file.stem)])
        env = environment(**fake_tensorrt)
        done = run_forked(TRY, str(path), *map(str, files), cwd=tmp_path, env=env)
        assert len(done.stdout.splitlines()) >= len(files), done.stderr
        assert "loaded" not in done.stdout
