"""``python -m benchmarks.llm [--quick]``: prints the goals, and writes ``results/llm.json``.

Language models with random weights on their way to a ``.pte``, and their steps; each in a process
of its own. ``--only hybrid`` measures one of ``KINDS`` again and keeps the others' results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from benchmarks.aot.processes import Result, run
from benchmarks.aot.tasks import Clock, Peak
from benchmarks.figures import Figure, figure, write
from tests.support.native_environment import ROOT

CACHE, PROMPT = 2048, 512
STEPS = 16
XNNPACK_MEMORY = 16 << 30  # For weights of 4 GB in fp32, packed once more, and the file.
SIZES: dict[str, dict[str, int]] = {
    "1.0 B": {
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "12 M": {
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    },
}


#: The models that are measured beside the Llama of ``transformers`` in bfloat16.
KINDS: dict[str, str] = {
    "executorch": "ExecuTorch's own definition of the model, bf16",
    "float16": 'the Llama of transformers in float32 with precision="float16"',
    "hybrid": "Falcon-H1 (Mamba 2 beside attention), 0.7 B or 12 M parameters, bf16",
    "convolutions": "LFM2 (short convolutions and attention), 1.2 B or 12 M parameters, bf16",
}
#: The widths of Falcon-H1-1.5B with half of its layers and the vocabulary of 0.5B, those of
#: LFM2-1.2B, and small ones.
HYBRIDS: dict[tuple[str, str], dict[str, Any]] = {
    ("hybrid", "1.0 B"): {
        "vocab_size": 32784,
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "mamba_d_ssm": 3072,
        "mamba_n_heads": 48,
        "mamba_d_state": 256,
    },
    ("hybrid", "12 M"): {
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "mamba_d_ssm": 768,
        "mamba_n_heads": 12,
        "mamba_d_state": 64,
    },
    ("convolutions", "1.0 B"): {
        "vocab_size": 65536,
        "hidden_size": 2048,
        "intermediate_size": 12288,  # Of which a layer has two thirds.
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    },
    ("convolutions", "12 M"): {
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 3072,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "full_attn_idxs": [2],
    },
}


def export(size: str, backend: str, engine_bytes: int, kind: str = "") -> Result:
    """A Llama's way to a ``.pte``; the clock runs from the exported program to the written file.

    Args:
        size: One of ``SIZES``.
        backend: ``rtx``, ``noop`` or ``xnnpack``.
        engine_bytes: What ``noop`` stores.
        kind: One of ``KINDS``; empty for a Llama of ``transformers`` in bfloat16.
    """
    import torch

    from benchmarks.aot.peers import AllNoopPartitioner
    from trt_et.conversion.torch_tensorrt_import import torch_tensorrt
    from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder
    from trt_et.llm import export_llm, steps

    torch_tensorrt()
    torch.manual_seed(0)
    found: Result = {}
    peak = Peak()
    precision = "float16" if kind == "float16" else None
    is_float32 = backend == "xnnpack" or kind in ("executorch", "float16")
    torch.set_default_dtype(torch.float32 if is_float32 else torch.bfloat16)
    model = _executorch_llama(size) if kind == "executorch" else _transformers(size, kind)
    torch.set_default_dtype(torch.float32)
    found["weights_bytes"] = sum(p.nbytes for p in model.parameters()) // (2 if precision else 1)
    lower, build = steps.to_edge_transform_and_lower, TensorRTRTXBuilder.build
    clocks: list[Clock] = []

    def lowered(program: Any, partitioner: Any, **options: Any) -> Any:
        if backend == "noop":
            partitioner = [AllNoopPartitioner(engine_bytes)]
        elif backend == "xnnpack":
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
                XnnpackPartitioner,
            )

            partitioner = [XnnpackPartitioner()]
        clocks.append(Clock())
        return lower(program, partitioner=partitioner, **options)

    def built(builder: Any, request: Any) -> Any:
        clock = Clock()
        engine = build(builder, request)
        found.update({f"build_{key}": value for key, value in clock.read().items()})
        found["build_peak_bytes"] = peak.bytes
        return engine

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(steps, "to_edge_transform_and_lower", lowered),
        mock.patch.object(TensorRTRTXBuilder, "build", built),
    ):
        path = Path(folder) / "program.pte"
        if kind == "executorch":
            program = _lower_executorch_llama(model, lowered)
        else:
            options: dict[str, Any] = {"cache_length": CACHE, "max_prompt": PROMPT}
            options |= {"precision": precision, "builder": "tensorrt_rtx"}
            program = export_llm(model, **options)
        with path.open("wb") as file:
            program.write_to_file(file)
        found |= clocks[0].read()
        return found | {"peak_bytes": peak.bytes, "file_bytes": path.stat().st_size}


def _transformers(size: str, kind: str, *, tied: bool = True) -> Any:
    from transformers import AutoModelForCausalLM, FalconH1Config, Lfm2Config, LlamaConfig

    make = {"hybrid": FalconH1Config, "convolutions": Lfm2Config}.get(kind, LlamaConfig)
    sizes = HYBRIDS.get((kind, size), SIZES[size])
    config = make(**sizes, max_position_embeddings=CACHE, tie_word_embeddings=tied)
    return AutoModelForCausalLM.from_config(config).eval()


def _executorch_llama(size: str) -> Any:
    from tests.support.programs.executorch_llama import make

    sizes = SIZES[size]
    model = make(
        dim=sizes["hidden_size"],
        hidden_dim=sizes["intermediate_size"],
        n_layers=sizes["num_hidden_layers"],
        n_heads=sizes["num_attention_heads"],
        n_kv_heads=sizes["num_key_value_heads"],
        vocab_size=sizes["vocab_size"],
        max_seq_len=PROMPT + 1,
        max_context_len=CACHE,
    )
    # Its caches are float32 until the model is converted.
    return model.bfloat16()


def _lower_executorch_llama(model: Any, lower: Any) -> Any:
    """Lower it as ExecuTorch's ``export_llm`` does."""
    import torch
    from executorch.exir import ExecutorchBackendConfig
    from torch.export import Dim, export

    from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner

    inputs = (torch.tensor([[2, 3, 4]]), {"input_pos": torch.tensor([0])})
    sizes = ({1: Dim("token_dim", max=PROMPT)}, {"input_pos": {0: 1}})
    with torch.no_grad():
        program = export(model, inputs, dynamic_shapes=sizes, strict=True)
    manager = lower(program, [TensorRTPartitioner(builder="tensorrt_rtx", full_graph=True)])
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    return manager.to_executorch(config)


def steps(size: str, kind: str = "") -> Result:
    """What decode steps copy between the host and a simulated GPU.

    Args:
        size: One of ``SIZES``.
        kind: One of ``HYBRIDS``; empty for a Llama.
    """
    import torch
    from executorch.runtime import Runtime

    import trt_et.runtime
    from trt_et.llm import export_llm
    from trt_et.runtime import counters

    model = _transformers(size, kind, tied=False)
    options: dict[str, Any] = {"cache_length": CACHE, "max_prompt": PROMPT}
    buffer = bytes(export_llm(model, builder="reference", **options).buffer)
    trt_et.runtime.load(cuda="simulated:1")
    method = Runtime.get().load_program(buffer).load_method("forward")
    assert method is not None
    method.execute([torch.ones(1, 8, dtype=torch.int64), torch.tensor([0])])
    before = counters()
    for position in range(8, 8 + STEPS):
        token, place = torch.tensor([[position]]), torch.tensor([position])
        (logits,) = method.execute([token, place])
    after = counters()
    return {
        "bytes": sum(after[name] - before[name] for name in ("bytes_h2d", "bytes_d2h")) / STEPS,
        "bytes_of_token_position_and_logits": token.nbytes + place.nbytes + logits.nbytes,
    }


def _run(function: str, **arguments: Any) -> Result:
    return run((function, arguments), "benchmarks.llm")


def _ratios(size: str, kind: str = "") -> dict[str, Any]:
    rtx = _run("export", size=size, backend="rtx", engine_bytes=0, kind=kind)
    noop = _run("export", size=size, backend="noop", engine_bytes=rtx["file_bytes"], kind=kind)
    time = {
        key: round(rtx[key] / (rtx[f"build_{key}"] + noop[key]), 4)
        for key in ("seconds", "cpu_seconds")
    }
    memory = round(rtx["peak_bytes"] / rtx["build_peak_bytes"], 4)
    stored = round(rtx["file_bytes"] / rtx["weights_bytes"], 4)
    return {"ratios": time | {"memory": memory, "file": stored}, "rtx": rtx, "noop": noop}


def measure(size: str, known: dict[str, Figure], kinds: Iterable[str]) -> dict[str, Figure]:
    """P18 to P21; P18 to P20 for models of that size.

    Args:
        size: One of ``SIZES``.
        known: Figures of an earlier run, for the kinds that are not measured.
        kinds: What is measured: ``llama``, ``xnnpack`` and names of ``KINDS``.
    """
    model = f"a Llama of {size} parameters, bf16, cache {CACHE}, 1 to {PROMPT} tokens, TensorRT-RTX"
    details, moved = (dict(known[name]["details"]) if known else {} for name in ("P18", "P21"))
    for kind in kinds:
        if kind == "llama":
            details |= _ratios(size)
            moved |= _run("steps", size="12 M")
        elif kind == "xnnpack":
            free = psutil.virtual_memory().available
            details["xnnpack_fp32"] = (
                _run("export", size=size, backend="xnnpack", engine_bytes=0)
                if free >= XNNPACK_MEMORY
                else f"not run: {free >> 30} GiB were free, of {XNNPACK_MEMORY >> 30} needed"
            )
        else:
            details[kind] = {"model": KINDS[kind], **_ratios(size, kind)}
    hybrids = {kind for kind, _ in HYBRIDS}
    for kind in hybrids.intersection(kinds):
        moved[kind] = _run("steps", size="12 M", kind=kind)
    all_ratios = [details["ratios"], *(details[kind]["ratios"] for kind in KINDS)]
    time, memory, stored = (
        max(ratios[key] for ratios in all_ratios) for key in ("cpu_seconds", "memory", "file")
    )
    crossing = max(
        each["bytes"] / each["bytes_of_token_position_and_logits"]
        for each in (moved, *(moved[kind] for kind in hybrids))
    )
    figures = (
        figure(
            "P18",
            time,
            1.15,
            f'{model}, and the models under "details", the largest ratio: processor time from the '
            "exported program to the written file / (that of the engine's build alone, conversion "
            "included, and of a backend that stores as many bytes and does nothing)",
            **details,
        ),
        figure(
            "P19",
            memory,
            1.05,
            "the same: peak resident set above the imports' / that until the engine was built",
        ),
        figure(
            "P20",
            stored,
            1.03,
            "the same: bytes of the file / bytes of the weights; one method for prompt and steps",
        ),
        figure(
            "P21",
            crossing,
            1.0,
            "a Llama, Falcon-H1 and LFM2 of 12 M parameters, fp32, with reference engines on a "
            "simulated GPU, the largest ratio: bytes between host and GPU per decoded token / "
            "(token + position + one row of logits)",
            **moved,
        ),
    )
    return dict(figures)


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="12 M parameters")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", choices=KINDS, help="one kind, and keep the others' results")
    arguments = parser.parse_args()
    quick: bool = arguments.quick
    output: Path = arguments.output or ROOT / (
        "build/llm-quick.json" if quick else "benchmarks/results/llm.json"
    )
    before = round(os.getloadavg()[0], 1)
    kinds = ["llama", *KINDS, *([] if quick else ["xnnpack"])]
    known = {}
    if arguments.only:
        kinds, known = [arguments.only], json.loads(output.read_text())["goals"]
    goals = measure("12 M" if quick else "1.0 B", known, kinds)
    load = {"before": before, "after": round(os.getloadavg()[0], 1)}
    write(output, "make bench-llm" + (" QUICK=1" if quick else ""), goals, load_average=load)
    for name, found in goals.items():
        sys.stdout.write(f"{name}: {found['value']} (at most {found['goal']})\n")


if __name__ == "__main__":
    main()
