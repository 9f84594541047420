"""A small Llama, trained on this project's documents, in ExecuTorch's TextLLMRunner.

Trains a BPE tokenizer and a model for half a minute, and exports it twice: with a real engine,
which needs no GPU to build, and with a reference engine, which runs on a simulated GPU.
ExecuTorch's own runner streams the text; each token is compared with eager's.

    python examples/llm.py [--output DIR] [--builder tensorrt_rtx] [--short]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

import trt_et.runtime
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm
from trt_et.runtime import counters

DOCUMENTS = Path(__file__).parents[1]
PROMPTS = ("The engine", "An optimization profile", "TensorRT is")
END = "<end>"
CONTEXT = 128
NEW_TOKENS = 48

console = Console()


def main() -> int:
    """Train, export and run; return 0 if the runner's tokens equal eager's."""
    arguments = _arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    paths = (*sorted(DOCUMENTS.glob("*.md")), *sorted(DOCUMENTS.glob("docs/*.md")))
    text = END.join(" ".join(path.read_text().split()) for path in paths)
    # A piece of the answer is a string in Python, and half a character is none.
    text = text.encode("ascii", "ignore").decode()
    tokenizer = train_tokenizer(text, arguments.output / "tokenizer.json")
    layers, seconds = (1, 5) if arguments.short else (2, 30)
    model = train_model(tokenizer, text, layers, seconds)
    exported = [
        export(model, builder, arguments.output / f"llm-{builder}.pte")
        for builder in dict.fromkeys((arguments.builder, "reference"))
    ]
    trt_et.runtime.load(cuda="simulated:1")
    return 0 if run(model, tokenizer, exported[-1]) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path("build/llm"), help="folder for .pte")
    parser.add_argument("--builder", default="tensorrt_rtx", help="of the real engine")
    parser.add_argument("--short", action="store_true", help="one layer, 5 s of training")
    return parser.parse_args()


def train_tokenizer(text: str, path: Path) -> Tokenizer:
    """A byte-level BPE tokenizer of a text, written to a file that ExecuTorch reads."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.save(str(path))
    return tokenizer


def train_model(tokenizer: Tokenizer, text: str, layers: int, seconds: float) -> PreTrainedModel:
    """A small Llama, trained on pieces of the text for so many seconds."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=tokenizer.token_to_id(END),
        eos_token_id=tokenizer.token_to_id(END),
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    ids = torch.tensor(tokenizer.encode(text).ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    start, steps, loss = time.monotonic(), 0, torch.zeros(())
    while time.monotonic() - start < seconds:
        rows = torch.randint(len(ids) - CONTEXT, (8,))
        batch = torch.stack([ids[row : row + CONTEXT] for row in rows.tolist()])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    console.print(
        f"trained {model.num_parameters() / 1e6:.1f} M parameters on {len(ids):,} tokens, "
        f"{steps} steps: loss {float(loss.detach()):.2f}"
    )
    return model.eval()


def export(model: PreTrainedModel, builder: str, path: Path) -> Path:
    """Export the model with one builder's engines."""
    start = time.monotonic()
    program = export_llm(model, cache_length=CONTEXT, builder=builder)
    with path.open("wb") as file:
        program.write_to_file(file)
    method = inspect_program(path.read_bytes())[0]
    weights = sum(parameter.nbytes for parameter in model.parameters())
    console.print(
        f"{path.name}: {len(method.delegates)} engine, {path.stat().st_size / 1e6:.1f} MB for "
        f"{weights / 1e6:.1f} MB of weights, in {time.monotonic() - start:.0f} s"
    )
    return path


def run(model: PreTrainedModel, tokenizer: Tokenizer, path: Path) -> bool:
    """Stream an answer to each prompt; return whether all of them equal eager's."""
    from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

    runner = TextLLMRunner(str(path), str(path.with_name("tokenizer.json")))
    config = GenerationConfig(echo=False, max_new_tokens=NEW_TOKENS, temperature=0.0)
    runner.generate(PROMPTS[0], config)  # The first call loads the engine.
    table = Table("prompt", "tokens/s", "bytes a token to the GPU", "to the host", "as eager")
    agrees = True
    for prompt in PROMPTS:
        pieces: list[str] = []
        runner.reset()
        before, start = counters(), time.monotonic()
        runner.generate(prompt, config, pieces.append)  # Also writes each piece to stdout.
        elapsed, after = time.monotonic() - start, counters()
        same = "".join(pieces) == _eager(model, tokenizer, prompt)
        agrees = agrees and same
        moved = [(after[name] - before[name]) / len(pieces) for name in ("bytes_h2d", "bytes_d2h")]
        table.add_row(
            prompt,
            f"{len(pieces) / elapsed:.0f}",
            *(f"{count:,.0f}" for count in moved),
            "yes" if same else "NO",
        )
    sys.stdout.flush()
    console.print(table)
    return agrees


def _eager(model: PreTrainedModel, tokenizer: Tokenizer, prompt: str) -> str:
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    with torch.no_grad():
        said = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False)[0, ids.shape[1] :]
    return str(tokenizer.decode(said.tolist(), skip_special_tokens=False))


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
