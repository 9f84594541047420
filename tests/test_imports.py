"""What importing costs, and what works without Torch-TensorRT."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from importlib.metadata import version

import pytest

import trt_et
from trt_et.conversion.installed import installed_variant, is_onnx_installed, uses_rtx_parser

NO_TENSORRT = """
import sys
hidden = {hidden!r}
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            return None
        return self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def run(code: str, *hidden: str) -> str:
    text = (NO_TENSORRT.format(hidden=hidden) if hidden else "") + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_public_names():
    assert set(trt_et.__all__) == {
        "BackendConflictError",
        "BlobError",
        "BuilderError",
        "BuilderUnavailable",
        "DeviceIdError",
        "EngineCache",
        "EngineFile",
        "OptionError",
        "PartitionError",
        "PluginError",
        "TensorRTBackend",
        "TensorRTMemoryPlanningPass",
        "TensorRTPartitioner",
        "TrtEtError",
        "UnsupportedModelError",
        "__version__",
        "compare",
    }
    for name in trt_et.__all__:
        assert getattr(trt_et, name) is not None


@pytest.mark.reliability("R14")
def test_importing_takes_no_torch_and_the_partitioner_no_tensorrt_before_it_partitions():
    code = """
        import sys, trt_et, trt_et.engine_info, trt_et.runtime
        names = ("torch", "torch_tensorrt", "tensorrt", "tensorrt_rtx")
        print([name for name in names if name in sys.modules])
        trt_et.TensorRTPartitioner()
        print([name for name in names if name in sys.modules])
    """
    assert run(code).splitlines() == ["[]", "['torch']"]


WITHOUT_TENSORRT = """
        from trt_et import BuilderUnavailable, TensorRTPartitioner
        for builder in ("auto", "tensorrt_rtx", "tensorrt"):
            try:
                TensorRTPartitioner(builder=builder)
            except BuilderUnavailable as error:
                said = str(error)
                print('pip install "torch-tensorrt' in said, "reference" in said, "trt-et" in said)
        import logging
        logging.basicConfig(format="%(name)s %(message)s", stream=__import__("sys").stdout)
        from tests.support.lowering import export, lower
        from trt_et import TensorRTPartitioner
        from trt_et.inspection import inspect_program
        partitioner = TensorRTPartitioner(builder="reference")
        method = inspect_program(lower(export("vit"), partitioner=partitioner))[0]
        print(len(method.delegates), partitioner.report.not_delegated)
"""


@pytest.mark.long
@pytest.mark.reliability("R14")
def test_without_torch_tensorrt_other_builders_name_the_command_and_reference_works():
    lines = run(WITHOUT_TENSORRT, "torch_tensorrt", "tensorrt", "tensorrt_rtx").splitlines()
    assert lines[:3] == ["True True False", "True False False", "True False False"]
    (said,) = [line for line in lines if line.startswith("trt_et.engines.support_check")]
    assert "pip install" in said
    assert "1 ()" in lines


WITHOUT_TORCH_TENSORRT = """
        import sys
        from tests.support.lowering import export, lower
        from trt_et import BuilderUnavailable, TensorRTPartitioner
        from trt_et.inspection import inspect_program
        for builder in ("auto", "reference"):
            partitioner = TensorRTPartitioner(builder=builder)
            (method,) = inspect_program(lower(export("mlp"), partitioner=partitioner))
            (delegate,) = method.delegates
            print(delegate.engine.builder, delegate.engine.parser, partitioner.report.made_by)
            from trt_et.engines import support_check
            print([fingerprint.partition(":")[0] for fingerprint in support_check._KNOWN])
        print("torch_tensorrt" in sys.modules, "tensorrt" in sys.modules)
        try:
            TensorRTPartitioner(builder="tensorrt")
        except BuilderUnavailable as error:
            print(error)
"""


@pytest.mark.long
@pytest.mark.skipif(
    not (is_onnx_installed() and importlib.util.find_spec("tensorrt_rtx")),
    reason="tensorrt-rtx is not installed",
)
def test_without_torch_tensorrt_the_parser_of_tensorrt_rtx_makes_engines_and_checks_support():
    lines = run(WITHOUT_TORCH_TENSORRT, "torch_tensorrt", "tensorrt").splitlines()
    made_by = f"the ONNX parser of TensorRT-RTX {version('tensorrt-rtx')}"
    assert lines[0] == f"tensorrt_rtx onnx {made_by}"
    assert lines[2].split() == ["reference"]
    assert lines[1] == lines[3] == "['trt_et.engines.rtx_network.RtxParserBuilder']"
    assert lines[4] == "False False"
    assert lines[5].startswith("builder='tensorrt' is not available: Torch-TensorRT is not inst")


@pytest.mark.skipif(uses_rtx_parser(), reason="make matrix: the set light")
def test_a_torch_tensorrt_is_installed_where_tests_run():
    """Without one, a dozen files of tests would be skipped, and nobody would see it."""
    assert installed_variant() is not None
