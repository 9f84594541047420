"""Exports a small model of each task with ``optimum-cli`` and trt-et's recipe; compares with eager.

python scripts/optimum/check.py FOLDER [NAME ...]
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import models
import torch
from comparisons import (
    PROMPT,
    Program,
    compare_classes,
    compare_filled_masks,
    compare_multimodal,
    compare_speech,
    compare_text,
)
from transformers.utils import logging

import trt_et.runtime
from trt_et.inspection import inspect_file

LENGTH = ("--max_seq_len", str(models.LENGTH))
_CHANGES = ("qlinear", "qembedding", "dtype")
# Numbers are rounded in the model: a step of rounding may differ.
compare_rounded_text = partial(compare_text, atol=5e-2)
# Up to the window of models with sliding windows.
compare_single_tokens = partial(compare_text, at_once=False, steps=models.WINDOW - len(PROMPT) - 1)
CUSTOM = ("--use_custom_sdpa", "--use_custom_kv_cache")


@dataclass(frozen=True)
class Case:
    """A model, how optimum exports it, and how its program is compared with eager."""

    task: str
    make: Callable[[], Any]
    compare: Callable[[Any, Program], None]
    flags: tuple[str, ...] = ()
    refusal: str = ""  # A part of the message with which optimum or trt-et refuses it.

    @property
    def name(self) -> str:
        """Return the task, the model and the flags."""
        return " ".join([f"{self.task}, {self.make.__name__}", *self.flags])


TEXT = "text-generation"
TEXT_TO_TEXT = "text2text-generation"
MULTIMODAL = "multimodal-text-to-text"
CASES = [
    Case(TEXT, models.llama, compare_text, LENGTH),
    Case(TEXT, models.llama, compare_text, (*LENGTH, CUSTOM[0])),
    Case(TEXT, models.llama, compare_text, (*LENGTH, CUSTOM[1])),
    Case(TEXT, models.llama, compare_text, (*LENGTH, *CUSTOM)),
    Case(TEXT, models.llama, compare_single_tokens, (*LENGTH, "--disable_dynamic_shapes")),
    Case(TEXT, models.gemma3_text, compare_single_tokens, LENGTH),
    Case(TEXT, models.gemma3_text, compare_text, (*LENGTH, *CUSTOM)),
    *(
        Case(TEXT, models.llama, compare_text, (*LENGTH, "--qlinear", kind))
        for kind in ("4w", "8w", "8da8w")
    ),
    Case(TEXT, models.llama, compare_rounded_text, (*LENGTH, "--qlinear", "8da4w")),
    Case(TEXT, models.llama, compare_text, (*LENGTH, "--qembedding", "8w")),
    Case(TEXT, models.llama, compare_rounded_text, (*LENGTH, "--dtype", "bfloat16")),
    # optimum's cache of T5's cross attention has another length than the encoder's output.
    Case(TEXT_TO_TEXT, models.t5, compare_text, LENGTH, "fake tensor call"),
    Case(TEXT_TO_TEXT, models.bart, compare_text, LENGTH, "Unsupported model type"),
    Case("automatic-speech-recognition", models.whisper, compare_speech, LENGTH),
    Case(MULTIMODAL, models.gemma3, compare_multimodal),
    Case(MULTIMODAL, models.voxtral, compare_multimodal),
    Case("fill-mask", models.bert, compare_filled_masks),
    Case("fill-mask", models.roberta, compare_filled_masks),
    Case("fill-mask", models.modernbert, compare_filled_masks),
    Case("image-classification", models.vit, compare_classes),
    Case(
        "object-detection", models.vit, compare_classes, refusal="'NoneType' object is not callable"
    ),
]


def _export(case: Case, model: Path, output: Path) -> None:
    """Run ``optimum-cli`` in this process."""
    from optimum.commands.optimum_cli import main

    words = ["optimum-cli", "export", "executorch", "-m", str(model), "--task", case.task]
    words += ["--recipe", "tensorrt", "-o", str(output), *case.flags]
    with mock.patch.object(sys, "argv", words), _without_downloads():
        main()


@contextlib.contextmanager
def _without_downloads() -> Iterator[None]:
    """Give encoders example inputs; optimum downloads an image, or sound, and processes it."""
    from optimum.exporters.executorch import integrations

    batch = torch.export.Dim("enc_batch_size_dim", min=1, max=10)
    encoders = {
        integrations.VisionExportableModule: (models.IMAGE, None),
        integrations.AudioExportableModule: (models.SOUND, {"input_features": {0: batch}}),
    }
    with contextlib.ExitStack() as patches:
        for encoder, inputs in encoders.items():
            patch = mock.patch.object(encoder, "prepare_export_inputs", return_value=inputs)
            patches.enter_context(patch)
        yield


def _as_optimum_loads(case: Case, folder: Path) -> Any:
    """Return the model with quantized weights, or with other numbers."""
    from optimum.exporters.executorch.task_registry import task_registry

    given = dict(zip(case.flags[::2], case.flags[1::2], strict=False))
    changes = {name: given[f"--{name}"] for name in _CHANGES if f"--{name}" in given}
    return task_registry[case.task](str(folder), **changes).model


def _check(case: Case, folder: Path) -> str:
    """Return what is wrong with a case; empty if nothing is."""
    model = models.write(case.make, folder / "model")
    try:
        for builder in ("tensorrt_rtx", "reference"):
            with mock.patch.dict(os.environ, TRT_ET_BUILDER=builder):
                _export(case, folder / "model", folder / builder)
    except Exception as error:  # Whatever optimum and torch raise.
        return "" if case.refusal and case.refusal in str(error) else _shown(error)
    if case.refusal:
        return f"no error has {case.refusal!r}"
    for builder in ("tensorrt_rtx", "reference"):
        for method in inspect_file(folder / builder / "model.pte").methods:
            left = [name for name in method.cpu_operators if not name.startswith("et_copy::")]
            if method.input_values and (len(method.delegates) != 1 or left):
                return f"{builder}: {method.name} has {len(method.delegates)} engines; CPU: {left}"
    if set(case.flags) & {f"--{name}" for name in _CHANGES}:
        model = _as_optimum_loads(case, folder / "model")
    try:
        with torch.no_grad():
            case.compare(model, Program(folder / "reference" / "model.pte"))
    except Exception as error:  # A difference, or what the runtime raises.
        return _shown(error)
    return ""


def _shown(error: Exception) -> str:
    traceback.print_exception(error)
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _check_command(folder: Path) -> str:
    """Run the installed ``optimum-cli`` with TensorRT-RTX, and all environment variables."""
    models.write(models.llama, folder / "model")
    variables = {
        **{"TRT_ET_BUILDER": "tensorrt_rtx", "TRT_ET_DEVICE": "1"},
        **{"TRT_ET_PRECISION": "float16", "TRT_ET_CACHE": str(folder / "cache")},
    }
    script = Path(sys.executable).with_name("optimum-cli")
    words = [script, "export", "executorch", "-m", folder / "model", "--recipe", "tensorrt"]
    subprocess.run(
        [*words, "-o", folder / "pte", *LENGTH], env={**os.environ, **variables}, check=True
    )
    (method,) = (m for m in inspect_file(folder / "pte/model.pte").methods if m.delegates)
    engines = [delegate.engine for delegate in method.delegates]
    found = [(e.builder, e.device_id, e.precision) for e in engines if e]
    if found != [("tensorrt_rtx", 1, "float16")]:
        return f"the engines are {found}"
    return "" if any((folder / "cache").rglob("engines/*/*")) else "the cache is empty"


def _check_python(folder: Path) -> str:
    """Run the classes of optimum with the recipe that importing ``trt_et.optimum`` registers."""
    from optimum.executorch import ExecuTorchModelForCausalLM

    import trt_et.optimum  # noqa: F401  Registers the recipe.

    eager = models.write(models.llama, folder / "model")
    tokens = [3, 1, 4, 1, 5]
    expected = eager.generate(
        torch.tensor([tokens]), max_new_tokens=16, do_sample=False, eos_token_id=None
    )[0].tolist()
    model = ExecuTorchModelForCausalLM.from_pretrained(
        folder / "model",
        recipe="tensorrt",
        task=TEXT,
        max_seq_len=models.LENGTH,
        recipe_kwargs={"builder": "reference"},
    )
    found = model.generate(tokens, echo=True, max_seq_len=len(expected))
    return "" if found == expected else f"the text is {found}, eager says {expected}"


def main(folder: Path, names: list[str]) -> int:
    """Check all cases, or those with one of these words; 0 if all are as expected."""
    logging.disable_progress_bar()
    trt_et.runtime.load(cuda="simulated:1")
    checks: dict[str, Callable[[Path], str]] = {
        **{case.name: partial(_check, case) for case in CASES},
        "optimum-cli, TensorRT-RTX": _check_command,
        "ExecuTorchModelForCausalLM": _check_python,
    }
    wrong = 0
    for index, (name, check) in enumerate(checks.items()):
        if not names or any(word in name for word in names):
            problem = check(folder / str(index))
            print(f"{name}: {problem or 'as expected'}", flush=True)
            wrong += bool(problem)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
