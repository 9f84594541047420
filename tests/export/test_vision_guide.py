"""The modules of docs/guides/vision.md against torchvision and torch, and each is one engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.lowering import lower
from tests.support.run_documents import blocks
from tests.support.simulated_gpus import check, load_method
from trt_et import TensorRTPartitioner
from trt_et.engine_info import decode_blob
from trt_et.inspection import inspect_program
from trt_et.runtime import counters

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "vision.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the page's blocks define."""
    names: dict[str, Any] = {}
    for block in blocks(PAGE.read_text(), "python"):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def check_one_engine(model: torch.nn.Module, *inputs: torch.Tensor) -> None:
    pte = lower(torch.export.export(model, inputs))
    (method,) = inspect_program(pte)
    assert len(method.delegates) == 1
    assert not method.operator_calls
    check(pte, model, inputs)


@pytest.mark.long
def test_roi_align_is_that_of_torchvision(page):
    ops = pytest.importorskip("torchvision").ops
    features = torch.randn(1, 3, 16, 20)
    boxes = torch.tensor([[1.0, 2, 9, 10], [0, 0, 30, 25], [4, 4, 5, 5]])
    model = page["RoiAlign"](7, 2, 0.5)
    expected = ops.roi_align(features, [boxes], 7, 0.5, 2, aligned=True)
    torch.testing.assert_close(model(features, boxes), expected, atol=1e-5, rtol=1e-5)
    check_one_engine(model, features, boxes)


@pytest.mark.long
def test_deform_conv_is_that_of_torchvision(page):
    ops = pytest.importorskip("torchvision").ops
    inputs = (torch.randn(1, 3, 16, 20), torch.randn(1, 18, 14, 18), torch.randn(4, 3, 3, 3))
    model = page["DeformConv"]()
    torch.testing.assert_close(model(*inputs), ops.deform_conv2d(*inputs), atol=1e-4, rtol=1e-4)
    check_one_engine(model, *inputs)


def test_what_lacks_a_kernel_fails_with_the_text_of_the_page():
    ops = pytest.importorskip("torchvision").ops

    class Align(torch.nn.Module):
        def forward(self, features: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
            return ops.roi_align(features, [boxes], 7)

    class Deform(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return ops.deform_conv2d(*inputs)

    class Suppress(torch.nn.Module):
        def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return ops.nms(boxes, scores, 0.5)

    features, boxes = torch.zeros(1, 3, 8, 8), torch.ones(2, 4)
    taps = (features, torch.zeros(1, 18, 6, 6), torch.zeros(4, 3, 3, 3))
    for model, inputs, text in (
        (Align(), (features, boxes), "Missing out variants: {'torchvision::roi_align'}"),
        (Deform(), taps, "Missing out variants: {'torchvision::deform_conv2d'}"),
        (
            Suppress(),
            (boxes, torch.ones(2)),
            "Cannot evaluate a finite upper bound for symbolic expression",
        ),
    ):
        with pytest.raises(RuntimeError, match=text.replace("{", r"\{")):
            lower(torch.export.export(model, inputs))
        assert text in PAGE.read_text()


def of_cameras(page: dict[str, Any]) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return page["TwoCameras"](torch.nn.Conv2d(3, 1, 3, padding=1)).eval(), page["cameras"]


def dtypes_of_bindings(pte: bytes) -> set[str]:
    """The dtypes of the inputs and outputs of the only engine, which is the whole program."""
    (method,) = inspect_program(pte)
    (delegate,) = method.delegates
    assert not method.operator_calls
    return {binding.dtype for binding in decode_blob(delegate.blob).info.bindings}


def test_images_of_cameras_cross_the_host_in_their_own_bytes(page):
    model, images = of_cameras(page)
    pte = lower(torch.export.export(model, images))
    assert dtypes_of_bindings(pte) == {"uint8"}
    loaded = load_method(pte)
    loaded.execute(list(images))
    before = counters()
    (mask,) = loaded.execute(list(images))
    moved = {key: count - before[key] for key, count in counters().items()}
    assert moved["bytes_h2d"] == sum(image.nbytes for image in images)
    assert moved["bytes_d2h"] == mask.nbytes
    assert set(mask.unique().tolist()) == {0, 255}
    assert torch.equal(mask, model(*images))


def test_tensorrt_builds_the_engine_of_cameras_in_float16(page):
    model, images = of_cameras(page)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx", precision="float16", full_graph=True)
    pte = lower(torch.export.export(model, images), partitioner=partitioner)
    assert dtypes_of_bindings(pte) == {"uint8"}
    (partition,) = partitioner.report.partitions
    assert {why for _, _, why in partition.float32} == {"between float32 tensors"}  # Casts.
