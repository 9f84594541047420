"""The table of engines in ``docs/performance.md``, made from ``results/engines.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.engines.goals import Models, best_peer, figure_of
from tests.support.markdown import table

TITLES = {
    "mobilenet_v3": "MobileNet V3 small",
    "unet": "U-Net, group norms",
    "vit_tiny": "ViT, 4 blocks",
    "vit_dynamic_batch": "ViT, dynamic batch",
    "bert_mini": "BERT, 4 layers",
    "bert_masked": "BERT, padding mask",
    "bert_dynamic": "BERT, dynamic batch and length",
    "llama": "Llama, 2 layers",
    "whisper_encoder": "Whisper encoder, 2 layers",
    "detr": "DETR",
    "swin": "Swin, 6 blocks",
    "resnet18": "ResNet-18",
    "convnext_atto": "ConvNeXt atto",
    "lstm_gru": "LSTM and GRU",
}
COLUMNS = {
    "kernels": ("kernels", 1, ".0f"),
    "moved_bytes": ("memory traffic, MB", 1e6, ".1f"),
    "activation_memory_bytes": ("activation memory, MB", 1e6, ".1f"),
}
"""Key of a figure -> its name, its unit, and how it is written."""


def engines_table(models: Models) -> str:
    """The table: for each model and figure, ours and the best other way's."""
    head = ["model"]
    for name, _, _ in COLUMNS.values():
        head += [f"{name}: trt-et", "best other"]
    return "\n".join(table(head, [_row(model, ways) for model, ways in models.items()])) + "\n"


def _row(model: str, ways: Any) -> list[str]:
    cells = [TITLES[model]]
    for key, (_, unit, form) in COLUMNS.items():
        mine, other = figure_of(ways["ours"], key), best_peer(ways, key)
        written = ["-" if v is None else format(v / unit, form) for v in (mine, other)]
        if mine is not None and other is not None and mine < other and written[0] != written[1]:
            written[0] = f"**{written[0]}**"
        cells += written
    return cells


def summary(models: Models, times: Mapping[str, Any]) -> str:
    """A table of some models: kernels, traffic, and milliseconds on an H200."""
    head = ("model, in float16", "kernels of a call", "best other way to TensorRT")
    more = ("megabytes that a call moves", "best other way", "one call on an H200, ms")
    last = "eager PyTorch in a CUDA graph there, ms"
    rows = []
    for name in ("mobilenet_v3", "resnet18", "bert_mini", "detr", "vit_tiny"):
        counts = [cell.strip("*") for cell in _row(name, models[name])[1:5]]
        found = [f"{times[name][way]['done_us'] / 1000:.3f}" for way in ("ours", "eager_graph")]
        rows.append([TITLES[name], *counts, *found])
    return "\n".join(table((*head, *more, last), rows)) + "\n"


def beside_the_best(model: str, models: Models) -> str:
    """A model's kernels and traffic in words."""
    kernels, best_kernels, moved, best_moved = _row(model, models[model])[1:5]
    return (
        f"{kernels} and {moved} MB; the better of TensorRT's ONNX parser and Torch-TensorRT: "
        f"{best_kernels} and {best_moved} MB"
    ).replace("*", "")
