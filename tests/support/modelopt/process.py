"""Quantizes models with modelopt itself and lowers them, in a process of its own.

modelopt, once imported, changes what other imports do; the tests shall not see it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.quantization.utils import export_torch_mode

from tests.support.lowering import lower
from tests.support.programs.quantized_models import MODELS


def main(folder: Path) -> None:
    for name, (model, shape) in MODELS.items():
        torch.manual_seed(0)
        x = torch.randn(shape)
        found = mtq.quantize(model().eval(), mtq.FP8_DEFAULT_CFG, lambda model, x=x: model(x))
        with torch.no_grad(), export_torch_mode():
            program = torch.export.export(found, (x,))
        pte = lower(program)
        (folder / f"{name}.pte").write_bytes(pte)
        torch.save([x], folder / f"{name}.inputs")
        torch.save(found(x).detach(), folder / f"{name}.expected")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
