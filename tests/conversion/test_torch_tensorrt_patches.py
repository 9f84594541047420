"""What is patched in Torch-TensorRT is undone, and is still needed."""

from __future__ import annotations

import contextlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.support.lowering import blobs, lower_case
from tests.support.mended import is_installed
from tests.support.programs.quantized_models import quantized
from tests.support.programs.quantized_networks import Network, needs_rtx
from tests.support.python_process import run_forked
from trt_et.conversion import network, rewriting
from trt_et.conversion.torch_tensorrt_import import torch_tensorrt

pytestmark = needs_rtx


def patched_functions() -> list[object]:
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS
    from torch_tensorrt.dynamo.conversion.impl.elementwise import base
    from torch_tensorrt.dynamo.lowering.passes import constant_folding

    return [
        torch.cuda.get_device_capability,
        torch.cuda.current_device,
        constant_folding._TorchTensorRTConstantFolder.is_impure,
        base.broadcast_to_same_shape,
        type(DYNAMO_CONVERTERS).validate_invariants,
    ]


def lower_two_partitions(**options) -> None:
    pte = lower_case("split", builder="tensorrt_rtx", excluded_ops=["aten.cumsum"], **options)
    assert len(blobs(pte)) == 2


def test_builds_and_one_that_fails_leave_nothing_patched(monkeypatch):
    torch_tensorrt()
    plain = patched_functions()
    with ThreadPoolExecutor(2) as pool:
        lower_two_partitions(executor=pool)
    assert patched_functions() == plain

    def failing(*_):
        raise ValueError("out of luck")

    monkeypatch.setattr("trt_et.conversion.network.unlift", failing)
    with pytest.raises(Exception, match="out of luck"):
        lower_two_partitions()
    assert patched_functions() == plain


# A patch that these show to be needed no longer can go.

IMPORTS = {
    "without_gpu": "import torch_tensorrt",
    "without_runtime": """
from trt_et.conversion.torch_tensorrt_patches import without_gpu
with without_gpu():
    import torch_tensorrt.dynamo
""",
}


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is patched beside a GPU")
@pytest.mark.parametrize("name", IMPORTS)
def test_it_still_cannot_be_imported_without_answers(name, tmp_path):
    """Torch-TensorRT 2.14 looks by itself whether its library can be loaded."""
    mended = name == "without_runtime" and is_installed("torch-tensorrt-rtx", "2.14")
    done = run_forked(IMPORTS[name], cwd=tmp_path)
    assert done.returncode == (0 if mended else 1), f"{name}: needed: {done.returncode == 1}"
    assert mended or "Traceback" in done.stderr


def test_quantized_weights_are_still_folded(monkeypatch):
    program, _ = quantized("mlp")
    assert Network(program).kinds["DEQUANTIZE"] == 5
    monkeypatch.setattr(rewriting, "weights_stay_quantized", contextlib.nullcontext)
    assert Network(program).kinds["DEQUANTIZE"] < 5, "weights_stay_quantized() is not needed"


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.scale


def test_operands_are_still_repeated(monkeypatch):
    program = torch.export.export(Scaled(), (torch.ones(2, 3, 4),))
    assert Network(program).kinds["SLICE"] == 0
    monkeypatch.setattr(network, "constants_stay_small", contextlib.nullcontext)
    assert Network(program).kinds["SLICE"] > 0, "constants_stay_small() is not needed"


def test_the_registry_is_still_checked_at_each_look_up(monkeypatch):
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    checks = Counter()
    check = type(DYNAMO_CONVERTERS).validate_invariants

    def counted(registry):
        checks["all"] += 1
        check(registry)

    monkeypatch.setattr(type(DYNAMO_CONVERTERS), "validate_invariants", counted)
    program, _ = quantized("mlp")
    Network(program)
    ours = checks["all"]
    monkeypatch.setattr(network, "without_registry_checks", contextlib.nullcontext)
    Network(program)
    assert checks["all"] - ours > 2 * ours, "without_registry_checks() is not needed"


def test_importing_torch_tensorrt_leaves_the_warnings_of_the_process_alone(tmp_path):
    script = (
        "import logging, warnings; "
        "from trt_et.conversion.torch_tensorrt_import import torch_tensorrt; "
        "before = warnings.showwarning; torch_tensorrt(); "
        "assert warnings.showwarning is before"
    )
    done = run_forked(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
