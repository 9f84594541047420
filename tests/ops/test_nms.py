"""Non-maximum suppression: eager and the runtime's kernel, against torchvision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

from tests.support.lowering import lower, reference
from tests.support.simulated_gpus import check, load_method
from trt_et.errors import OptionError
from trt_et.inspection import inspect_program
from trt_et.ops import batched_nms

SETS = 250


class Suppress(torch.nn.Module):
    def __init__(self, iou: float = 0.5, above: float = 0.05, most: int = 20) -> None:
        super().__init__()
        self.options = (iou, above, most)

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return batched_nms(boxes, scores, *self.options)


def make_set(
    seed: int, batch: int = 2, n: int = 24, classes: int = 3
) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes of whole numbers, whose offsets in torchvision are exact, and scores with ties."""
    make = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, 12, (batch, n, 2), generator=make)
    # Of no width, too.
    size = torch.randint(0, 12, (batch, n, 2), generator=make)
    scores = torch.randint(0, 20, (batch, n, classes), generator=make) / 20
    scores[scores < 0.3 * (seed % 4)] = 0  # For results that are not full.
    return torch.cat([corner, corner + size], -1).float(), scores


def expected(
    boxes: torch.Tensor, scores: torch.Tensor, iou: float, above: float, most: int
) -> list[tuple[torch.Tensor, ...]]:
    """What torchvision keeps of each image."""
    ops = pytest.importorskip("torchvision").ops
    results = []
    for image_boxes, image_scores in zip(boxes, scores, strict=True):
        rows, classes = (image_scores > above).nonzero(as_tuple=True)
        values = image_scores[rows, classes]
        kept = ops.batched_nms(image_boxes[rows], values, classes, iou)[:most]
        results.append((image_boxes[rows[kept]], values[kept], classes[kept]))
    return results


def check_equal(found: Any, wanted: list[tuple[torch.Tensor, ...]]) -> None:
    boxes, scores, classes, count = found
    for image, want in enumerate(wanted):
        size = int(count[image])
        have = (boxes[image, :size], scores[image, :size], classes[image, :size])
        for one, other in zip(have, want, strict=True):
            assert torch.equal(one, other)
        assert not boxes[image, size:].any()
        assert not scores[image, size:].any()
        assert (classes[image, size:] == -1).all()


@pytest.fixture(scope="module")
def kernel() -> Any:
    """The operator in ExecuTorch's runtime, for any batch."""
    boxes, scores = make_set(0)
    batch = Dim("batch", max=8)
    shapes = ({0: batch}, {0: batch})
    program = torch.export.export(Suppress(), (boxes, scores), dynamic_shapes=shapes)
    return load_method(lower(program))


def test_both_keep_what_torchvision_keeps_of_random_sets(kernel):
    counts = set()
    for seed in range(SETS):
        boxes, scores = make_set(seed, batch=1 + seed % 3)
        wanted = expected(boxes, scores, 0.5, 0.05, 20)
        check_equal(Suppress()(boxes, scores), wanted)
        check_equal(kernel.execute([boxes, scores]), wanted)
        counts |= {len(want[1]) for want in wanted}
    assert 20 in counts
    assert min(counts) < 8


def test_overlaps_are_those_of_torchvision_bit_by_bit():
    """At thresholds that are overlaps of the boxes themselves."""
    ops = pytest.importorskip("torchvision").ops
    for seed in range(5):
        make = torch.Generator().manual_seed(seed)
        corner, size = torch.rand((2, 1, 40, 2), generator=make)
        boxes = torch.cat([corner, corner + size], -1)
        scores = torch.rand((1, 40, 1), generator=make)
        iou = ops.box_iou(boxes[0, :1], boxes[0, 1:2]).item()
        wanted = ops.nms(boxes[0], scores[0, :, 0], iou)
        model = Suppress(iou, 0.0, 40)
        check(lower(torch.export.export(model, (boxes, scores))), model, (boxes, scores), atol=0)
        found, _, _, count = model(boxes, scores)
        assert torch.equal(found[0, : int(count)], boxes[0, wanted])


def test_of_equal_scores_the_first_one_wins(kernel):
    boxes, scores = make_set(1, batch=1)
    scores[:] = 0.5
    wanted = expected(boxes, scores, 0.5, 0.05, 20)
    check_equal(kernel.execute([boxes, scores]), wanted)
    check_equal(Suppress()(boxes, scores), wanted)


@pytest.mark.parametrize("number", [float("nan"), -float("inf"), 0.05])
def test_scores_that_are_not_above_the_threshold_leave_an_empty_result(kernel, number):
    boxes, scores = make_set(2)
    scores[0] = number
    for found in (kernel.execute([boxes, scores]), Suppress()(boxes, scores)):
        assert found[3].tolist() == [0, len(expected(boxes, scores, 0.5, 0.05, 20)[1][1])]
        assert (found[2][0] == -1).all()


def test_a_score_of_nan_is_not_kept_among_others(kernel):
    boxes, scores = make_set(3)
    scores[:, ::2] = float("nan")
    wanted = expected(boxes, scores, 0.5, 0.05, 20)
    check_equal(kernel.execute([boxes, scores]), wanted)
    check_equal(Suppress()(boxes, scores), wanted)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_boxes_that_are_no_numbers_suppress_nothing(kernel, number):
    boxes, scores = make_set(4)
    boxes[:, ::3, 2] = number
    for one, other in zip(kernel.execute([boxes, scores]), Suppress()(boxes, scores), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_what_float32_of_the_same_numbers_gives(dtype):
    boxes, scores = (tensor.to(dtype) for tensor in make_set(5))
    model = Suppress()
    pte = lower(torch.export.export(model, (boxes, scores)))
    check(pte, model, (boxes, scores), atol=0, rtol=0)
    wanted = [
        w.to(dtype) if w.is_floating_point() else w for w in model(boxes.float(), scores.float())
    ]
    for have, want in zip(model(boxes, scores), wanted, strict=True):
        assert torch.equal(have, want)


def test_no_boxes_and_more_results_than_candidates():
    boxes, scores = torch.zeros(1, 0, 4), torch.zeros(1, 0, 2)
    assert Suppress()(boxes, scores)[3].tolist() == [0]
    boxes, scores = make_set(6, n=2, classes=1)
    model = Suppress(most=50)
    check(lower(torch.export.export(model, (boxes, scores))), model, (boxes, scores), atol=0)


def test_the_partitioner_leaves_it_on_the_cpu_and_says_why():
    class Head(Suppress):
        def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return super().forward(boxes * 2, scores.sigmoid())

    inputs = make_set(7)
    program = torch.export.export(Head(), inputs)
    report = reference().explain(program)
    assert "trt-et's kernel for it runs on the CPU" in str(report)
    (method,) = inspect_program(lower(program))
    assert len(method.delegates) >= 1
    assert set(method.operator_calls) == {"trt_et::batched_nms.out"}
    check(lower(program), Head(), inputs)


def test_the_out_variant_writes_into_its_arguments():
    boxes, scores = make_set(8)
    wanted = Suppress()(boxes, scores)
    outs = {
        f"out_{name}": torch.empty_like(want)
        for name, want in zip(("boxes", "scores", "classes", "count"), wanted, strict=True)
    }
    torch.ops.trt_et.batched_nms.out(boxes, scores, 0.5, 0.05, 20, **outs)
    for have, want in zip(outs.values(), wanted, strict=True):
        assert torch.equal(have, want)


@pytest.mark.parametrize(
    ("boxes", "scores", "most", "message"),
    [
        (torch.zeros(5, 4), torch.zeros(5, 2), 3, r"boxes \[5, 4\]"),
        (torch.zeros(1, 5, 4), torch.zeros(1, 6, 2), 3, "the same batch"),
        (torch.zeros(1, 5, 4).double(), torch.zeros(1, 5, 2).double(), 3, "float64"),
        (torch.zeros(1, 5, 4), torch.zeros(1, 5, 2).half(), 3, "float16"),
        (torch.zeros(1, 5, 4), torch.zeros(1, 5, 2), 0, "max_output is 0"),
    ],
)
def test_wrong_arguments_are_refused(boxes, scores, most, message):
    with pytest.raises(OptionError, match=message):
        batched_nms(boxes, scores, 0.5, 0.0, most)
