"""The table of engines in ``docs/performance.md``, made from ``results/engines.json``."""

from __future__ import annotations

from typing import Any

from benchmarks.engines.goals import Models, best_peer, figure_of
from benchmarks.figures import with_text
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


def with_table(page: str, models: Models) -> str:
    """Return the page with the table between its two marks replaced."""
    return with_text(page, "engines.json", engines_table(models))
