"""``python -m benchmarks.llm [--quick]``: a table, and ``benchmarks/results/llm.json``.

A Llama with random weights on its way to a ``.pte``, and its steps; each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from rich.console import Console

from benchmarks.aot.processes import ENVIRONMENT, ROOT, Result
from benchmarks.aot.tasks import Clock, Peak
from benchmarks.figures import Figure, figure, machine

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


def export(size: str, backend: str, engine_bytes: int) -> Result:
    """A Llama's way to a ``.pte``; the clock runs from the exported program to the written file.

    Args:
        size: One of ``SIZES``.
        backend: ``rtx``, ``noop`` or ``xnnpack``.
        engine_bytes: What ``noop`` stores.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import trt_et.llm.export as llm
    from benchmarks.aot.peers import AllNoopPartitioner
    from trt_et.conversion.torch_tensorrt_import import torch_tensorrt
    from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder

    torch_tensorrt()
    torch.manual_seed(0)
    found: Result = {}
    peak = Peak()
    config = LlamaConfig(**SIZES[size], max_position_embeddings=CACHE, tie_word_embeddings=True)
    torch.set_default_dtype(torch.float32 if backend == "xnnpack" else torch.bfloat16)
    model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    found["weights_bytes"] = sum(p.nbytes for p in model.parameters())
    lower, build = llm.to_edge_transform_and_lower, TensorRTRTXBuilder.build
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
        mock.patch.object(llm, "to_edge_transform_and_lower", lowered),
        mock.patch.object(TensorRTRTXBuilder, "build", built),
    ):
        path = Path(folder) / "program.pte"
        program = llm.export_llm(
            model, cache_length=CACHE, max_prompt=PROMPT, builder="tensorrt_rtx"
        )
        with path.open("wb") as file:
            program.write_to_file(file)
        found |= clocks[0].read()
        return found | {"peak_bytes": peak.bytes, "file_bytes": path.stat().st_size}


def steps(size: str) -> Result:
    """What decode steps of a Llama copy between the host and a simulated GPU.

    Args:
        size: One of ``SIZES``.
    """
    import torch
    from executorch.runtime import Runtime
    from transformers import LlamaConfig, LlamaForCausalLM

    import trt_et.runtime
    from trt_et.llm import export_llm
    from trt_et.runtime.counters import read_counters

    model = LlamaForCausalLM(LlamaConfig(**SIZES[size], max_position_embeddings=CACHE)).eval()
    buffer = bytes(export_llm(model, cache_length=CACHE, builder="reference").buffer)
    trt_et.runtime.load(cuda="simulated:1")
    method = Runtime.get().load_program(buffer).load_method("forward")
    assert method is not None
    method.execute([torch.ones(1, 8, dtype=torch.int64), torch.tensor([0])])
    before = read_counters()
    for position in range(8, 8 + STEPS):
        token, place = torch.tensor([[position]]), torch.tensor([position])
        (logits,) = method.execute([token, place])
    after = read_counters()
    return {
        "bytes": sum(after[name] - before[name] for name in ("bytes_h2d", "bytes_d2h")) / STEPS,
        "bytes_of_token_position_and_logits": token.nbytes + place.nbytes + logits.nbytes,
    }


def _run(function: str, **arguments: Any) -> Result:
    """One of ``TASKS``, in a process of its own."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        task = json.dumps(arguments)
        command = [sys.executable, "-m", "benchmarks.llm", "--task", function, task]
        command += ["--output", result.name]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise SystemExit(f"{function} {task}: {done.returncode}\n{done.stderr[-3000:]}")
        found: Result = json.loads(Path(result.name).read_text())
        return found


TASKS = {"export": export, "steps": steps}


def measure(size: str, *, with_xnnpack: bool) -> dict[str, Figure]:
    """P18 to P21; P18 to P20 for a Llama of that size."""
    rtx = _run("export", size=size, backend="rtx", engine_bytes=0)
    noop = _run("export", size=size, backend="noop", engine_bytes=rtx["file_bytes"])
    model = f"a Llama of {size} parameters, bf16, cache {CACHE}, 1 to {PROMPT} tokens, TensorRT-RTX"
    time = {
        key: round(rtx[key] / (rtx[f"build_{key}"] + noop[key]), 4)
        for key in ("seconds", "cpu_seconds")
    }
    details: dict[str, Any] = {"rtx": rtx, "noop": noop, "ratios": time}
    if with_xnnpack:
        free = psutil.virtual_memory().available
        details["xnnpack_fp32"] = (
            _run("export", size=size, backend="xnnpack", engine_bytes=0)
            if free >= XNNPACK_MEMORY
            else f"not run: {free >> 30} GiB of memory were free, of {XNNPACK_MEMORY >> 30} needed"
        )
    memory = rtx["peak_bytes"] / rtx["build_peak_bytes"]
    stored = rtx["file_bytes"] / rtx["weights_bytes"]
    moved = _run("steps", size="12 M")
    crossing = moved["bytes"] / moved["bytes_of_token_position_and_logits"]
    return {
        "P18": figure(
            time["cpu_seconds"],
            1.15,
            time["cpu_seconds"] <= 1.15,
            f"{model}: processor time from the exported program to the written file / (that of the "
            "engine's build alone, conversion included, and of a backend that stores as many bytes "
            "and does nothing)",
            **details,
        ),
        "P19": figure(
            memory,
            1.05,
            memory <= 1.05,
            "the same: peak resident set above the imports' / that until the engine was built",
        ),
        "P20": figure(
            stored,
            1.03,
            stored <= 1.03,
            "the same: bytes of the file / bytes of the weights; one method for prompt and steps",
        ),
        "P21": figure(
            crossing,
            1.0,
            crossing <= 1.0,
            "a Llama of 12 M parameters, fp32, with reference engines on a simulated GPU: bytes "
            "between host and GPU per decoded token / (token + position + one row of logits)",
            **moved,
        ),
    }


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="12 M parameters")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--task", nargs=2, help="a function, and its arguments as JSON")
    arguments = parser.parse_args()
    if arguments.task:
        function, values = arguments.task
        arguments.output.write_text(json.dumps(TASKS[function](**json.loads(values))))
        return
    quick: bool = arguments.quick
    output: Path = arguments.output or ROOT / (
        "build/llm-quick.json" if quick else "benchmarks/results/llm.json"
    )
    load = os.getloadavg()[0]
    goals = measure("12 M" if quick else "1.0 B", with_xnnpack=not quick)
    result = {
        "machine": machine(),
        "command": "make bench-llm" + (" QUICK=1" if quick else ""),
        "load_average": {"before": round(load, 1), "after": round(os.getloadavg()[0], 1)},
        "goals": goals,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n")
    console = Console()
    for name, found in goals.items():
        console.print(f"{name}: {found['value']} (at most {found['goal']})")
    console.print(f"written to {output}")


if __name__ == "__main__":
    main()
