"""Exports a Llama with ``optimum-executorch`` and the recipe of trt-et; compares with eager.

python scripts/optimum/check.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from optimum.executorch import ExecuTorchModelForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM

import trt_et.optimum
import trt_et.runtime
from trt_et.inspection import inspect_file

PROMPT = [3, 1, 4, 1, 5]
NEW_TOKENS = 16


def main(folder: Path) -> int:
    """Both ways; 0 if the programs have one engine, and the reference one says what eager says."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        eos_token_id=63,
    )
    eager = LlamaForCausalLM(config).eval()
    eager.save_pretrained(folder / "model")
    expected = eager.generate(
        torch.tensor([PROMPT]), max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None
    )[0].tolist()

    trt_et.runtime.load(cuda="simulated:1")
    model = ExecuTorchModelForCausalLM.from_pretrained(
        folder / "model",
        recipe="tensorrt",
        task="text-generation",
        max_seq_len=64,
        recipe_kwargs={"builder": "reference"},
    )
    found = model.generate(PROMPT, echo=True, max_seq_len=len(expected))
    agrees = found == expected
    print(f"reference engine: {'as eager' if agrees else f'{found}, eager says {expected}'}")

    command = [sys.executable, "-m", "trt_et.optimum", "export", "executorch", "--recipe"]
    paths = ["tensorrt", "-m", str(folder / "model"), "-o", str(folder / "pte")]
    subprocess.run([*command, *paths, "--max_seq_len", "64"], check=True)
    method = inspect_file(folder / "pte" / "model.pte").methods[0]
    builders = [d.engine.builder for d in method.delegates if d.engine is not None]
    print(f"command line: engines of {builders}")
    return 0 if agrees and builders == ["tensorrt_rtx"] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
