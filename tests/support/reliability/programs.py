"""The programs that are used hard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["export_programs"]


def export_programs(folder: Path) -> dict[str, Path]:
    """Export them: ``mlp`` and ``two`` with reference engines, ``rtx`` with one of TensorRT-RTX.

    ``fake`` has an engine of the fake TensorRT, ``two`` engines on two GPUs.
    """
    import torch

    from tests.support.fake_tensorrt import FakeBuilder, Line
    from tests.support.native_programs import Mlp, TwoEngines, export

    torch.manual_seed(0)
    x = (torch.randn(2, 8),)
    split: dict[str, Any] = {
        "excluded_ops": (torch.ops.aten.sinh,),
        "device": lambda partition: f"cuda:{partition.index}",
    }
    found = {
        "mlp": export(folder, "mlp", Mlp(), x),
        "two": export(folder, "two", TwoEngines(), x, **split),
        "rtx": export(folder, "rtx", Mlp(), x, builder="tensorrt_rtx"),
        "fake": export(folder, "fake", Line(), x, builder=FakeBuilder()),
    }
    return {name: program.path for name, program in found.items()}
