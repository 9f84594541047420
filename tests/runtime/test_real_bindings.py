"""TensorRT-RTX's real Python bindings, as far as they go without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

from tests.support.native_environment import ROOT
from trt_et import TensorRTPartitioner
from trt_et.engine_info import EngineBlob, decode_blob
from trt_et.inspection import inspect_program
from trt_et.runtime.python_engine import Binding, Bindings, Code, Engine, EngineFailure

trt = pytest.importorskip(
    "tensorrt_rtx", reason="TensorRT-RTX is not installed: pip install .[rtx]"
)


@pytest.fixture(scope="module")
def blob() -> EngineBlob:
    program = torch.export.export(torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),))
    manager = to_edge_transform_and_lower(
        program, partitioner=[TensorRTPartitioner(builder="tensorrt_rtx")]
    )
    (delegate,) = inspect_program(manager.to_executorch().buffer)[0].delegates
    return decode_blob(delegate.blob)


def refusal(blob: EngineBlob, engine: bytes) -> EngineFailure:
    named = [Binding(binding.name, binding.is_input) for binding in blob.info.bindings]
    with pytest.raises(EngineFailure) as caught:
        Engine(Bindings(trt), memoryview(engine), 0, named, blob.info.library_version)
    return caught.value


def test_a_refusal_says_what_is_wrong_and_not_where_it_was_noticed(blob):
    broken = bytes([blob.engine[0] ^ 1]) + blob.engine[1:]
    found = refusal(blob, broken)
    assert found.code == Code.INVALID_COMPATIBILITY
    version = blob.info.library_version
    assert f"tensorrt_rtx {version} refuses an engine of {version}: " in str(found)
    assert "Serialization" in str(found)


def test_without_a_gpu_an_engine_gets_as_far_as_cuda(blob):
    tool = shutil.which("nvidia-smi")
    if tool is not None and subprocess.run([tool, "-L"], capture_output=True).returncode == 0:
        pytest.skip("there is a GPU: tests/gpu runs engines on it")
    assert "Cuda Runtime" in str(refusal(blob, blob.engine))


def test_the_double_of_the_bindings_has_nothing_that_they_have_not():
    double = _double()
    for name in ("Runtime", "ILogger"):
        _check_names(vars(double)[name], vars(trt)[name])
    _check_names(double.Engine, trt.ICudaEngine)
    _check_names(double.ExecutionContext, trt.IExecutionContext)
    for name in ("DataType", "TensorIOMode", "TensorLocation", "TensorFormat"):
        members = {member.name for member in vars(double)[name]}
        assert members <= set(vars(trt)[name].__members__)


def _double() -> ModuleType:
    path = ROOT / "tests/support/fake_bindings/tensorrt_rtx.py"
    spec = spec_from_file_location("double_of_tensorrt_rtx", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _check_names(double: type, real: type) -> None:
    names = {name for name in vars(double) if not name.startswith("_")} - {"made"}
    assert names <= set(dir(real)), f"{real.__name__} has no {sorted(names - set(dir(real)))}"
