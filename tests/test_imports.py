"""What importing costs, and what works without Torch-TensorRT."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import trt_et
from trt_et.conversion.installed import installed_variant

NO_TENSORRT = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch_tensorrt", "tensorrt", "tensorrt_rtx"):
            return None
        return self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def run(code: str, *, hidden: bool = False) -> str:
    text = (NO_TENSORRT if hidden else "") + textwrap.dedent(code)
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


@pytest.mark.reliability("R14")
def test_without_torch_tensorrt_other_builders_name_the_command_and_reference_works():
    lines = run(WITHOUT_TENSORRT, hidden=True).splitlines()
    assert lines[:3] == ["True True False", "True False False", "True False False"]
    (said,) = [line for line in lines if line.startswith("trt_et.engines.support_check")]
    assert "pip install" in said
    assert "1 ()" in lines


def test_a_torch_tensorrt_is_installed_where_tests_run():
    """Without one, a dozen files of tests would be skipped, and nobody would see it."""
    assert installed_variant() is not None
