"""Quantize models for TensorRT with ``prepare_pt2e``, ``prepare_qat_pt2e`` and ``convert_pt2e``.

::

    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from trt_et.quantizer import TensorRTQuantizer, int8

    prepared = prepare_pt2e(
        torch.export.export(model, inputs).module(), TensorRTQuantizer().set_global(int8())
    )
    prepared(*inputs)  # Calibrate, with real data.
    quantized = torch.export.export(convert_pt2e(prepared), inputs)
"""

from __future__ import annotations

from trt_et.quantizer.configs import fp8, int8, int8_weight_only
from trt_et.quantizer.quantizer import TensorRTQuantizer

__all__ = ["TensorRTQuantizer", "fp8", "int8", "int8_weight_only"]
