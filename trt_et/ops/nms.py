"""Define ``trt_et::batched_nms``, non-maximum suppression with results of a fixed size.

The operator runs on the CPU: the plugin library has its kernel for ExecuTorch's runtime
(``src/ops/batched_nms.cpp``).
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch._ops import OpOverload

from trt_et.errors import OptionError

_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)

Detections = tuple[Tensor, Tensor, Tensor, Tensor]


def batched_nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    score_threshold: float,
    max_output: int,
) -> Detections:
    """Keep the best boxes of each class that do not overlap a better box of that class.

    The boxes, their order and the rules for ties and NaN are as in
    ``torchvision.ops.batched_nms`` for the flattened ``scores`` above ``score_threshold``. Of equal
    scores, the first one wins. A score of NaN is never kept. Overlaps are computed in float32.

    Args:
        boxes: ``[batch, n, 4]``, corners ``(x1, y1, x2, y2)``; float32, float16 or bfloat16.
        scores: ``[batch, n, classes]``, of the dtype of ``boxes``. Leave out a class that is not
            to be found, such as the background.
        iou_threshold: A box is dropped if its intersection over union with a better one is larger.
        score_threshold: A score is a candidate if it is larger.
        max_output: The most boxes of an image, at least 1.

    Returns:
        ``boxes [batch, max_output, 4]``, ``scores [batch, max_output]``, ``classes [batch,
        max_output]`` (int64, indices into the last dimension of ``scores``) and ``count [batch]``
        (int64), by falling score. Behind the count, boxes and scores are 0, and classes -1.

    Raises:
        OptionError: A shape or a dtype is another one, or ``max_output`` is below 1.
    """
    if boxes.dim() != 3 or scores.dim() != 3 or boxes.shape[2] != 4:
        raise OptionError(
            f"batched_nms got boxes {list(boxes.shape)} and scores {list(scores.shape)}; expected "
            "[batch, n, 4] and [batch, n, classes]"
        )
    if boxes.shape[:2] != scores.shape[:2]:
        raise OptionError(
            f"batched_nms got boxes {list(boxes.shape)} and scores {list(scores.shape)}; expected "
            "the same batch and number of boxes in both"
        )
    if boxes.dtype not in _DTYPES or scores.dtype is not boxes.dtype:
        raise OptionError(
            f"batched_nms got boxes of {boxes.dtype} and scores of {scores.dtype}; expected one of "
            "float32, float16 and bfloat16 for both"
        )
    if type(max_output) is not int or max_output < 1:
        raise OptionError(f"max_output is {max_output!r}; expected an integer >= 1")
    found: Detections = BATCHED_NMS(boxes, scores, iou_threshold, score_threshold, max_output)
    return found


def _empty(boxes: Tensor, scores: Tensor, iou: float, above: float, most: int) -> Detections:
    batch = boxes.shape[0]
    return (
        boxes.new_zeros((batch, most, 4)),
        scores.new_zeros((batch, most)),
        scores.new_full((batch, most), -1, dtype=torch.int64),
        scores.new_zeros((batch,), dtype=torch.int64),
    )


def _eager(boxes: Tensor, scores: Tensor, iou: float, above: float, most: int) -> Detections:
    results = _empty(boxes, scores, iou, above, most)
    out_boxes, out_scores, out_classes, out_count = results
    for image in range(boxes.shape[0]):
        rows, classes = (scores[image].float() > above).nonzero(as_tuple=True)
        values = scores[image][rows, classes]
        order = values.float().argsort(descending=True, stable=True)
        rows, classes, values = rows[order], classes[order], values[order]
        kept = _kept(boxes[image][rows].float(), classes, iou, most)
        out_boxes[image, : len(kept)] = boxes[image][rows[kept]]
        out_scores[image, : len(kept)] = values[kept]
        out_classes[image, : len(kept)] = classes[kept]
        out_count[image] = len(kept)
    return results


def _kept(boxes: Tensor, classes: Tensor, iou: float, most: int) -> Tensor:
    """Return the indices to keep of boxes in the order of their scores."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[Tensor] = []
    left = torch.arange(len(boxes), device=boxes.device)
    while len(left) and len(kept) < most:
        best, left = left[0], left[1:]
        kept.append(best)
        corners = torch.maximum(boxes[best, :2], boxes[left, :2])
        sides = (torch.minimum(boxes[best, 2:], boxes[left, 2:]) - corners).clamp(min=0)
        both = sides[:, 0] * sides[:, 1]
        # In float64, as torchvision compares.
        overlaps = (both / (areas[best] + areas[left] - both)).double() > iou
        left = left[~(overlaps & (classes[left] == classes[best]))]
    return torch.stack(kept) if kept else left


def _into(
    boxes: Tensor,
    scores: Tensor,
    iou: float,
    above: float,
    most: int,
    *,
    out_boxes: Tensor,
    out_scores: Tensor,
    out_classes: Tensor,
    out_count: Tensor,
) -> Detections:
    outputs = (out_boxes, out_scores, out_classes, out_count)
    for out, result in zip(outputs, _eager(boxes, scores, iou, above, most), strict=True):
        out.resize_(result.shape).copy_(result)
    return outputs


_ARGUMENTS: Final = (
    "Tensor boxes, Tensor scores, float iou_threshold, float score_threshold, int max_output"
)
torch.library.define(
    "trt_et::batched_nms",
    f"({_ARGUMENTS}) -> (Tensor boxes, Tensor scores, Tensor classes, Tensor count)",
)
torch.library.define(
    "trt_et::batched_nms.out",
    f"({_ARGUMENTS}, *, Tensor(a!) out_boxes, Tensor(b!) out_scores, Tensor(c!) out_classes, "
    "Tensor(d!) out_count) -> (Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!))",
)
torch.library.impl("trt_et::batched_nms", "CompositeExplicitAutograd", _eager)
torch.library.impl("trt_et::batched_nms", "Meta", _empty)
torch.library.impl("trt_et::batched_nms.out", "CompositeExplicitAutograd", _into)

BATCHED_NMS: Final[OpOverload] = torch.ops.trt_et.batched_nms.default
"""The operator."""
