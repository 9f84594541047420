#!/usr/bin/env python3
"""Short tests with other versions of torch, ExecuTorch and TensorRT-RTX; writes docs/versions.md.

    make matrix                          every set
    make matrix SETS="oldest newest"     these sets

Each set has an environment of its own in build/matrix/SET, which a second run finds there. Runs
before anything is installed, so it needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MATRIX = ROOT / "build" / "matrix"
RESULTS = ROOT / "docs" / "versions.json"
PAGE = ROOT / "docs" / "versions.md"


@dataclass(frozen=True)
class VersionSet:
    """Versions that are tested together."""

    python: str  # The interpreter; the one that runs this if there is none of that version.
    constraints: tuple[str, ...] = ()  # For pip, beside the ranges of pyproject.toml.
    extra: str = "rtx"  # What builds engines.
    steps: tuple[str, ...] = ("demo", "operators", "models", "runtime", "conversion")


# What pyproject.toml allows at least; what this tree is developed with; what pip picks by itself,
# with Torch-TensorRT and without.
SETS = {
    "oldest": VersionSet(
        "3.10",
        (
            *("torch==2.13.0", "executorch==1.5.1", "torch-tensorrt-rtx==2.13.0"),
            "tensorrt-rtx==1.5.0.114",
        ),
    ),
    "pinned": VersionSet("3.11", tuple((ROOT / "constraints.txt").read_text().splitlines())),
    "newest": VersionSet("3.13"),
    "light": VersionSet(
        "3.13",
        extra="rtx-light,onnx,llm",
        steps=("demo", "operators", "models", "parser", "llm"),
    ),
}

# As in pyproject.toml's build-system.requires: the native part is compiled in the environment.
BUILD_TOOLS = ["executorch==1.5.*", "scikit-build-core>=0.11", "cmake>=3.28", "ninja"]
BUILD_TOOLS += ["nlohmann-json>=3.11,<4", "setuptools>=77"]  # tensorrt-rtx is a source archive.

PACKAGES = ("torch", "executorch", "torchao", "torch-tensorrt-rtx", "tensorrt-rtx")

STEPS = {
    "demo": ["examples/minilm.py"],
    "operators": ["-m", "pytest", "tests/coverage"],
    "models": ["-m", "pytest", "tests/zoo/test_builds.py", "tests/zoo/test_runs.py"],
    "runtime": ["-m", "pytest", "tests/runtime"],
    "conversion": [
        *("-m", "pytest", "--long", "tests/conversion/test_network.py"),
        "tests/conversion/operators/test_attention.py",
        *("tests/conversion/test_operators_are_needed.py", "tests/inspection/test_kernels.py"),
    ],
    "parser": [
        *("-m", "pytest", "tests/engines/test_rtx_network.py", "tests/conversion/onnx"),
        *("tests/test_imports.py", "tests/inspection/test_kernels.py"),
    ],
    "llm": [
        *("-m", "pytest", "tests/llm/test_export.py", "tests/llm/test_generate.py"),
        *("tests/llm/test_speech.py", "tests/llm/test_multimodal.py"),
        "tests/test_transformers_exporter.py",
    ],
}
PYTEST = ["-q", "-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadfile"]
STEP_LIMIT = 3600  # Seconds.

HEADER = """\
# Versions

Results of `make matrix`. Each row is a separate environment made by pip: **oldest** has the lowest
versions that `pyproject.toml` allows, **pinned** the versions of `constraints.txt`, and **newest**
the versions that pip installs for `trt-et[rtx]`. **light** has those for
`trt-et[rtx-light,onnx,llm]`, without Torch-TensorRT.

{table}

* **demo**: `examples/minilm.py`. **operators**: `tests/coverage`, a part of ExecuTorch's suite.
  **models**: the models of `tests/zoo` that CI takes, built by TensorRT-RTX and run by the
  reference builder. **runtime**: `tests/runtime`. **conversion**: the workarounds for
  Torch-TensorRT and TensorRT-RTX, whether they are still needed, and whether the kernels of an
  engine can be read. **parser**: engines by TensorRT-RTX's ONNX parser, whose kernels are read, and
  the ONNX models against eager, run by onnxruntime. **llm**: language models, Whisper, models of
  images and sound, and the exporter of transformers, against eager. "-": not a step of the set.
* `make test` runs all other tests with the versions of **pinned**.
* A number counts the tests that passed, without skipped tests.
* The machines have no GPU: TensorRT-RTX engines are built, reference engines run on simulated GPUs.
"""


def main() -> int:
    """Run the sets that the command names, and write the page after each step."""
    names = sys.argv[1:] or list(SETS)
    unknown = sorted(set(names) - SETS.keys())
    if unknown:
        print(f"no such set: {', '.join(unknown)}; there are {', '.join(SETS)}", file=sys.stderr)
        return 2
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for name in names:
        python = make_environment(name, SETS[name])
        results[name] = {**versions(python), "steps": {}}
        for step in SETS[name].steps:
            results[name]["steps"][step] = run_step(name, step, python)
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            PAGE.write_text(page(results))
    failed = [n for n in names if any(s["failed"] for s in results[n]["steps"].values())]
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


def versions(python: Path) -> dict[str, Any]:
    """What an environment has, and today's date."""
    installed = {
        package["name"].lower().replace("_", "-"): package["version"]
        for package in json.loads(asked(python, "-m", "pip", "list", "--format", "json"))
    }
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": asked(python, "--version").split()[-1],
        "packages": {package: installed.get(package, "none") for package in PACKAGES},
    }


def asked(*command: str | Path) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def make_environment(name: str, wanted: VersionSet) -> Path:
    """The interpreter of an environment with these versions and this tree, installed editable."""
    folder = MATRIX / name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter(wanted.python), "-m", "venv", folder], check=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(wanted.constraints))
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    install += ["--constraint", str(constraints)]
    subprocess.run([*install, *BUILD_TOOLS], check=True)
    install += ["--no-build-isolation", f"--config-settings=build-dir={folder / 'native'}"]
    subprocess.run([*install, "--editable", f".[{wanted.extra},demo,dev]"], cwd=ROOT, check=True)
    return python


def interpreter(version: str) -> str:
    """An interpreter of this version, or else the running one."""
    found = shutil.which(f"python{version}")
    return found if found and not subprocess.call([found, "-c", ""]) else sys.executable


def run_step(name: str, step: str, python: Path) -> dict[str, Any]:
    """Run one step, its output into build/matrix/SET.STEP.txt; what passed and what failed."""
    command = [str(python), *STEPS[step], *(PYTEST if "pytest" in STEPS[step] else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    log = MATRIX / f"{name}.{step}.txt"
    print(f"{name}: {step}", flush=True)
    with log.open("w") as output:
        try:
            code = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=STEP_LIMIT,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    return outcome(step, code, log.read_text(errors="replace"))


def outcome(step: str, code: int, text: str) -> dict[str, Any]:
    """The tests that passed, and those that failed by name; a step that is no test is one."""
    failed = sorted(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE))
    passed = re.findall(r"^(?:=+ )?(?:\d+ \w+, )*(\d+) passed", text, re.MULTILINE)
    if code and not failed:
        failed = [f"{step} ended with {code}" if code != -1 else f"{step} took over {STEP_LIMIT} s"]
    return {"passed": int(passed[-1]) if passed else int(code == 0), "failed": failed}


def page(results: dict[str, Any]) -> str:
    """docs/versions.md."""
    heads = ["set", "Python", *PACKAGES, *STEPS, "date"]
    rows = [heads, ["---"] * len(heads)]
    failures = []
    for name in (name for name in SETS if name in results):
        result = results[name]
        rows.append(
            [name, result["python"], *(result["packages"][package] for package in PACKAGES)]
        )
        for step in STEPS:
            missing = "not run" if step in SETS[name].steps else "-"
            found = result["steps"].get(step, {"passed": missing, "failed": []})
            failed = found["failed"]
            rows[-1].append(f"{found['passed']}" + (f", {len(failed)} failed" if failed else ""))
            failures += [f"* {name}, {step}: `{test}`" for test in failed]
        rows[-1].append(result["date"])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = HEADER.format(table=table)
    return text + ("\n## What failed\n\n" + "\n".join(failures) + "\n" if failures else "")


if __name__ == "__main__":
    sys.exit(main())
