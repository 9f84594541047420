"""Make what ``scripts/gpu_check`` takes to a machine with a GPU: programs, inputs, eager's outputs.

    python scripts/gpu/make_kit.py build/gpu_kit

Every model is there twice: with TensorRT-RTX engines, built here without a GPU, and with reference
engines, for the rehearsal on simulated GPUs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kit_writer import export_model, write_kit, write_model

from tests.support.models import make
from trt_et import TensorRTPartitioner

MODELS = ("mlp", "cnn", "vit", "channels_last", "outputs", "order", "cached")


def main(folder: Path) -> None:
    """Write the kit."""
    folder.mkdir(parents=True, exist_ok=True)
    kit = {}
    for name in MODELS:
        for builder in ("tensorrt_rtx", "reference"):
            # Made anew each time: a model may change its buffers when it runs.
            model, inputs = make(name)
            partitioner = TensorRTPartitioner(builder=builder)
            export_model(model, inputs, partitioner, folder / f"{name}.{builder}.pte")
        model, inputs = make(name)
        kit[name] = write_model(folder, name, model, inputs)
    write_kit(folder, kit)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
