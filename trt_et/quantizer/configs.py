"""The configurations of ``trt_et.quantizer.TensorRTQuantizer``.

They follow TensorRT's explicit quantization: signed, symmetric, no zero points.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import torch
from torchao.quantization.pt2e import FakeQuantize, FusedMovingAvgObsFakeQuantize
from torchao.quantization.pt2e.quantizer import QuantizationConfig, QuantizationSpec

from trt_et.errors import OptionError
from trt_et.ops.fake_quantize import FP8_LIMIT
from trt_et.quantizer.observers import (
    CalibratedMinMaxObserver,
    CalibratedMovingAverageMinMaxObserver,
    CalibratedMovingAveragePerChannelMinMaxObserver,
    CalibratedPerChannelMinMaxObserver,
    EntropyObserver,
    Fp8Observer,
    SymmetricHistogramObserver,
)

Calibration = Literal["minmax", "histogram", "entropy"]
"""How activations get their ranges."""

_CALIBRATIONS: Final[dict[str, Any]] = {
    "minmax": CalibratedMinMaxObserver,
    "histogram": SymmetricHistogramObserver,
    "entropy": EntropyObserver,
}
_SYMMETRIC: Final = (torch.per_tensor_symmetric, torch.per_channel_symmetric)


def int8(
    per_channel: bool = True, calibration: Calibration = "minmax", *, is_qat: bool = False
) -> QuantizationConfig:
    """Quantize activations and weights to int8.

    Args:
        per_channel: Give weights a scale for each output channel. False: one scale.
        calibration: The range of an activation: ``"minmax"`` is all that calibration saw,
            ``"histogram"`` has the smallest squared error, ``"entropy"`` the smallest
            Kullback-Leibler divergence. Training uses moving averages instead.
        is_qat: For ``prepare_qat_pt2e``: round during training.

    Raises:
        OptionError: An argument has another value.
    """
    _check_flags(per_channel=per_channel, is_qat=is_qat)
    if not isinstance(calibration, str) or calibration not in _CALIBRATIONS:
        raise OptionError(
            f"calibration is {calibration!r}; expected one of {', '.join(map(repr, _CALIBRATIONS))}"
        )
    if is_qat:
        observer = FusedMovingAvgObsFakeQuantize.with_args(
            observer=CalibratedMovingAverageMinMaxObserver
        )
    else:
        observer = _CALIBRATIONS[calibration].with_args()
    activation = QuantizationSpec(
        torch.int8, observer, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_symmetric
    )
    return QuantizationConfig(activation, None, _int8_weight(per_channel, is_qat), None, is_qat)


def int8_weight_only(per_channel: bool = True, *, is_qat: bool = False) -> QuantizationConfig:
    """Quantize weights to int8; activations keep their dtype.

    Args:
        per_channel: Give weights a scale for each output channel. False: one scale.
        is_qat: For ``prepare_qat_pt2e``: round during training.

    Raises:
        OptionError: An argument has another value.
    """
    _check_flags(per_channel=per_channel, is_qat=is_qat)
    return QuantizationConfig(None, None, _int8_weight(per_channel, is_qat), None, is_qat)


def fp8() -> QuantizationConfig:
    """Quantize activations and weights to fp8 (e4m3), with one scale for each tensor.

    The engines need compute capability 8.9. PT2E's own fp8 operators round to whole numbers first;
    the converted program contains ``trt_et::fake_quantize`` instead, which does not.
    """
    spec = QuantizationSpec(
        torch.float8_e4m3fn,
        Fp8Observer.with_args(),
        quant_min=-int(FP8_LIMIT),
        quant_max=int(FP8_LIMIT),
        qscheme=torch.per_tensor_symmetric,
    )
    return QuantizationConfig(spec, None, spec, None)


def check_config(config: object) -> None:
    """Check that TensorRT has layers for a configuration.

    Raises:
        OptionError: It is no configuration, or has zero points, ranges computed at run time, a
            quantized bias, or another dtype.
    """
    if config is None:
        return
    if not isinstance(config, QuantizationConfig):
        hint = " (call it)" if callable(config) else ""
        raise OptionError(
            f"the configuration is {config!r}{hint}; expected int8(), int8_weight_only(), fp8() or "
            "None"
        )
    if config.bias is not None:
        raise OptionError("the configuration quantizes biases; TensorRT adds them as floats")
    for name in ("input_activation", "output_activation", "weight"):
        spec = getattr(config, name)
        if spec is None:
            continue
        expected = "; expected what int8(), int8_weight_only() or fp8() make"
        if not isinstance(spec, QuantizationSpec):
            raise OptionError(f"{name} of the configuration is {spec!r}{expected}")
        if spec.is_dynamic:
            raise OptionError(
                f"{name} of the configuration has a range computed at run time (is_dynamic); "
                f"TensorRT's are fixed{expected}"
            )
        if spec.dtype not in (torch.int8, torch.float8_e4m3fn):
            raise OptionError(f"{name} of the configuration has the dtype {spec.dtype}{expected}")
        if spec.qscheme not in _SYMMETRIC:
            raise OptionError(
                f"{name} of the configuration has zero points ({spec.qscheme}); TensorRT's "
                f"quantized products have none{expected}"
            )


def _int8_weight(per_channel: bool, is_qat: bool) -> QuantizationSpec:
    observer: Any
    if is_qat:
        # The fused form knows channels on the first axis only.
        observer = FakeQuantize.with_args(
            observer=CalibratedMovingAveragePerChannelMinMaxObserver
            if per_channel
            else CalibratedMovingAverageMinMaxObserver
        )
    elif per_channel:
        observer = CalibratedPerChannelMinMaxObserver.with_args()
    else:
        observer = CalibratedMinMaxObserver.with_args()
    return QuantizationSpec(
        torch.int8,
        observer,
        quant_min=-127,
        quant_max=127,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
        ch_axis=0,
    )


def _check_flags(**flags: object) -> None:
    for name, flag in flags.items():
        if type(flag) is not bool:
            raise OptionError(f"{name} is {flag!r}; expected True or False")
