"""The option ``external_engines``: what goes into the program, and what beside it."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

from tests.support.models import Function, make
from trt_et import OptionError, TensorRTPartitioner
from trt_et.engine_info import decode_blob
from trt_et.errors import BlobError
from trt_et.inspection import inspect_file, inspect_program, read_program
from trt_et.inspection.data_file import read_data_file

X = torch.ones(2, 8)


def lowered(methods, **options):
    """The program of models by method, with its files by name."""
    partitioner = TensorRTPartitioner(**{"builder": "reference", **options})
    programs = {name: torch.export.export(model.eval(), (X,)) for name, model in methods.items()}
    return to_edge_transform_and_lower(programs, partitioner=[partitioner]).to_executorch()


def layer(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(8, 8)


def written(folder, methods, **options):
    program = lowered(methods, external_engines="engines", **options)
    program.save(str(folder / "model.pte"))
    program.write_tensor_data_to_file(folder)
    return folder / "model.pte", folder / "engines.ptd"


def keys(path):
    return [d.engine.engine_key for m in inspect_file(path).methods for d in m.delegates]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../engines", "a\\b", "a\0b", "a.ptd", 1])
def test_a_name_that_is_no_plain_file_name_is_refused(name):
    with pytest.raises(OptionError, match="expected the name of a file without a folder"):
        TensorRTPartitioner(builder="reference", external_engines=name)


def test_two_names_for_one_engine_are_refused():
    specs = [CompileSpec("external_engine_data", b"others")]
    with pytest.raises(OptionError, match="has several external_engine_data specs"):
        lowered({"forward": layer()}, compile_specs=specs, external_engines="engines")


def test_a_reader_of_torch_tensorrts_description_finds_the_engine(tmp_path):
    """A blob without an engine, its name in the metadata, and the plain engine under that name."""
    path, data = written(tmp_path, {"forward": layer()})
    (inside,) = inspect_program(bytes(lowered({"forward": layer()}).buffer))[0].delegates
    (delegate,) = inspect_program(path.read_bytes())[0].delegates
    assert dict(delegate.compile_specs)["external_engine_data"] == b"engines"
    blob = decode_blob(delegate.blob)
    assert (len(blob.engine), blob.info.bindings) == (0, inside.engine.bindings)
    payload = FlatTensorSerializer().deserialize(data.read_bytes())
    entry = payload.named_data[blob.info.engine_key]
    assert bytes(payload.buffers[entry.buffer_index]) == decode_blob(inside.blob).engine


def test_inspect_reads_the_file_beside_the_program_or_the_named_one(tmp_path):
    path, data = written(tmp_path, {"forward": layer()})
    (inside,) = inspect_program(bytes(lowered({"forward": layer()}).buffer))[0].delegates
    (found,) = inspect_file(path).methods[0].delegates
    assert bytes(found.blob) == inside.blob
    assert found.operators == inside.operators
    data.rename(tmp_path / "renamed")
    (missing,) = inspect_file(path).methods[0].delegates
    assert not missing.engine_size
    assert "which is not there" in " ".join(missing.row(0))
    (found,) = inspect_file(path, data=tmp_path / "renamed").methods[0].delegates
    assert bytes(found.blob) == inside.blob
    with pytest.raises(BlobError, match=r"model.pte cannot be read: it is no file of named data"):
        inspect_file(path, data=path)


def test_inspect_reports_a_damaged_engine(tmp_path):
    path, data = written(tmp_path, {"forward": layer()})
    content = bytearray(data.read_bytes())
    content[bytes(content).index(b"ET12") + 20] ^= 1
    data.write_bytes(content)
    (delegate,) = inspect_file(path).methods[0].delegates
    assert "engine blob is corrupt" in delegate.problem


def test_a_file_of_named_data_may_be_cut_anywhere(tmp_path):
    _, data = written(tmp_path, {"forward": layer()})
    content, cut = data.read_bytes(), tmp_path / "cut.ptd"
    assert set(read_data_file(data)) > set()
    for size in [*range(0, 400, 7), len(content) - 200]:
        cut.write_bytes(content[:size])
        with pytest.raises(BlobError, match=r"cut.ptd cannot be read: "):
            read_data_file(cut)


def test_programs_with_the_same_engine_have_the_same_file(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    path, data = written(first, {"forward": layer()})
    other_path, other = written(second, {"another_name": layer()}, min_block_size=1)
    assert keys(path) == keys(other_path)
    assert data.read_bytes() == other.read_bytes()
    # Other weights take the same place.
    other_path, other = written(second, {"forward": layer(1)})
    assert keys(path) == keys(other_path)
    assert data.read_bytes() != other.read_bytes()


def test_engines_of_one_program_have_places_of_their_own_and_equal_bytes_are_stored_once(tmp_path):
    path, data = written(tmp_path, {"a": layer(), "b": layer(), "c": layer(1)})
    assert len(set(keys(path))) == 3
    found = read_data_file(data)
    one, two, three = (found[key] for key in keys(path))
    assert one == two != three
    assert data.read_bytes().count(bytes(one)) == 1


def test_engines_in_branches_go_beside_the_program(tmp_path):
    model = Function(lambda x: torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y * 3, (x,)))
    path, _ = written(tmp_path, {"forward": model})
    assert len(set(keys(path))) == len(keys(path)) >= 2
    assert all(d.engine_size for d in inspect_file(path).methods[0].delegates)


def test_networks_and_their_weights_go_beside_the_program(tmp_path):
    torch.manual_seed(0)
    wide = torch.nn.Linear(8, 512)
    path, data = written(tmp_path, {"forward": wide}, builder="onnx")
    assert not read_program(path.read_bytes()).named_data
    (delegate,) = inspect_file(path).methods[0].delegates
    found = read_data_file(data)
    sizes = {len(found[key]) for key in delegate.engine.network["weights"]}
    assert sizes == {wide.weight.nbytes, wide.bias.nbytes}
    assert delegate.operator_counts["aten::linear.default"] == 1


def test_an_engine_of_tensorrt_rtx_is_written_and_read_back(tmp_path):
    pytest.importorskip("torch_tensorrt")
    model, (x,) = make("mlp")
    options = {"builder": "tensorrt_rtx", "external_engines": "rtx"}
    exported = torch.export.export(model, (x,))
    partitioner = TensorRTPartitioner(**options)
    program = to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch()
    program.save(str(tmp_path / "model.pte"))
    program.write_tensor_data_to_file(tmp_path)
    (delegate,) = inspect_file(tmp_path / "model.pte").methods[0].delegates
    assert delegate.engine.builder == "tensorrt_rtx"
    assert delegate.kernels is not None
    plan = read_data_file(tmp_path / "rtx.ptd")[delegate.engine.engine_key]
    assert decode_blob(delegate.blob).engine == plan
    assert bytes(plan) not in (tmp_path / "model.pte").read_bytes()
