"""Observers of torchao that refuse to give a scale before they have seen data."""

from __future__ import annotations

import logging
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.utils import create_getattr_from_value

from trt_et.errors import OptionError
from trt_et.ops.fake_quantize import FAKE_QUANTIZE

_log = logging.getLogger(__name__)

_BINS: Final = 2048
_LEVELS: Final = 128  # Magnitudes of int8.


class _Calibrated:
    """Raises an error, with the tensor's name, if there is no range to compute a scale from."""

    min_val: torch.Tensor
    max_val: torch.Tensor

    def __init__(self, *args: Any, observed: str = "a tensor", **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.observed = observed

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scale and the zero point, which is 0, after ``check_range``."""
        self.check_range()
        parameters: tuple[torch.Tensor, torch.Tensor] = super().calculate_qparams()  # type: ignore[misc]
        return parameters

    def check_range(self) -> None:
        """Check that the observed range is known and finite.

        Raises:
            OptionError: The observer has seen no data, or numbers that are not finite.
        """
        low, high = self.min_val, self.max_val
        if low.numel() == 0 or bool((low > high).any()):
            raise OptionError(
                f"{self.observed} has not been calibrated: its observer has seen no data. Run the "
                "prepared program with representative inputs before convert_pt2e"
            )
        if not bool(torch.isfinite(low).all() and torch.isfinite(high).all()):
            raise OptionError(
                f"the calibrated range of {self.observed} is {low.min()} to {high.max()}; expected "
                "finite numbers. Check the calibration inputs, or leave its operator out (None)"
            )
        if low.numel() == 1 and not bool(low.any() or high.any()):
            _log.warning(
                "%s was 0 in calibration: int8 rounds its other values to almost 0. Calibrate with "
                "representative inputs, or leave its operator out (None)",
                self.observed,
            )


class CalibratedMinMaxObserver(_Calibrated, MinMaxObserver):
    """Takes the range from the smallest to the largest number."""


class CalibratedPerChannelMinMaxObserver(_Calibrated, PerChannelMinMaxObserver):
    """Takes the range of each channel from the smallest to the largest number."""


class CalibratedMovingAverageMinMaxObserver(_Calibrated, MovingAverageMinMaxObserver):
    """Follows the range during training."""


class CalibratedMovingAveragePerChannelMinMaxObserver(
    _Calibrated, MovingAveragePerChannelMinMaxObserver
):
    """Follows the range of each channel during training."""


class SymmetricHistogramObserver(_Calibrated, HistogramObserver):
    """Takes the range around 0 with the smallest squared error."""

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        """Observe a tensor, and return it.

        Raises:
            OptionError: It has numbers that are not finite.
        """
        if not bool(torch.isfinite(x_orig).all()):
            raise OptionError(
                f"{self.observed} has numbers in calibration that are not finite; expected finite "
                "numbers. Check the calibration inputs, or leave its operator out (None)"
            )
        observed: torch.Tensor = super().forward(x_orig)
        return observed

    def _non_linear_param_search(self) -> tuple[torch.Tensor, torch.Tensor]:
        counts, width = self._magnitudes()
        ends = torch.arange(_LEVELS, _BINS + 1, _LEVELS // 16)
        errors = torch.stack([self._loss(counts, int(end)) for end in ends])
        largest = (ends[errors.argmin()] * width).to(self.min_val)
        return -largest, largest

    def _magnitudes(self) -> tuple[torch.Tensor, float]:
        """Return the number of elements of each magnitude, and the width of a bin."""
        low, high = float(self.min_val), float(self.max_val)
        width = (max(abs(low), abs(high)) or 1.0) / _BINS
        centers = low + (torch.arange(self.bins) + 0.5) * ((high - low) / self.bins)
        bins = (centers.abs() / width).long().clamp(max=_BINS - 1)
        counts = torch.zeros(_BINS, dtype=torch.float64)
        return counts.index_add_(0, bins, self.histogram.to(counts)), width

    def _loss(self, counts: torch.Tensor, end: int) -> torch.Tensor:
        """Return how much is lost by a range of so many bins."""
        values = torch.arange(_BINS) + 0.5
        scale = end / _LEVELS
        rounded = (values / scale).round().clamp(max=_LEVELS - 1) * scale
        return (counts * (values - rounded) ** 2).sum()


class EntropyObserver(SymmetricHistogramObserver):
    """Takes the range around 0 with the smallest Kullback-Leibler divergence."""

    def _loss(self, counts: torch.Tensor, end: int) -> torch.Tensor:
        counts = counts.clone()
        counts[0] = counts[1]  # Zeros, of masks and of ReLU, are exact with every scale.
        kept = counts[:end]
        clipped = kept.clone()
        clipped[-1] += counts[end:].sum()
        levels = torch.arange(end) * _LEVELS // end
        is_filled = kept > 0
        totals = torch.zeros(_LEVELS).to(kept).index_add_(0, levels, kept)
        filled = torch.zeros(_LEVELS).to(kept).index_add_(0, levels, is_filled.to(kept))
        rounded = torch.where(is_filled, (totals / filled.clamp(min=1))[levels], 0.0)
        # Numbers that only the clipped histogram has get a small probability.
        p, q = clipped / clipped.sum(), (rounded / rounded.sum()).clamp(min=1e-12)
        return torch.where(p > 0, p * (p / q).log(), 0.0).nan_to_num(nan=float("inf")).sum()


class Fp8Observer(CalibratedMinMaxObserver):
    """Becomes one operator that quantizes to e4m3 and dequantizes.

    PT2E's own pair of operators rounds to whole numbers before it makes 8-bit floats.
    """

    def convert(self, model: GraphModule, node: Node) -> None:
        """Replace the observer by ``trt_et::fake_quantize``; ``convert_pt2e`` calls this."""
        self.check_range()
        amax = torch.maximum(self.min_val.abs(), self.max_val.abs()).to(torch.float32)
        with model.graph.inserting_before(node):
            limit = create_getattr_from_value(model, model.graph, f"{node.name}_amax_", amax)
            call = model.graph.call_function(
                FAKE_QUANTIZE, (node.args[0], limit, 8, 4, False, False)
            )
        call.meta = dict(node.meta)
        node.replace_all_uses_with(call)
        model.graph.erase_node(node)
