"""Run every program of the kit, from Python or in executor_runner, and compare with eager.

    python scripts/gpu/run_kit.py KIT RESULT.json [--runner [PATH]] [--builder NAME]

Each program runs in a process of its own, so that one that crashes is reported and the others run.
With the path of a runner this needs PyTorch, to compare, and neither ExecuTorch nor this package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from kit import Model, compare, read_kit, read_tensor

FROM_PYTHON = """
import sys, torch, trt_et.runtime
program, inputs, outputs = sys.argv[1:]
trt_et.runtime.load()
from executorch.runtime import Runtime
method = Runtime.get().load_program(program).load_method("forward")
arguments = torch.load(inputs)
for _ in range(3):
    found = method.execute(arguments)
torch.save([tensor.clone() for tensor in found], outputs)
"""


def main() -> int:
    """Write how each program ended; 0 if all agree with eager."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument(
        "--runner", nargs="?", const="", help="in executor_runner: that path, else the installed"
    )
    parser.add_argument("--builder", default="tensorrt_rtx", help="whose engines")
    options = parser.parse_args()
    models = read_kit(options.kit, options.builder)
    run = _from_python
    if options.runner is not None:
        run = partial(_in_runner, options.runner or _installed_runner())
    results = {model.name: run(model) for model in models}
    options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0 if results and all(result["ok"] for result in results.values()) else 1


def _from_python(model: Model) -> dict[str, Any]:
    import torch

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.save(model.inputs, folder / "inputs")
        paths = [str(model.program), str(folder / "inputs"), str(folder / "outputs")]
        failure = _start([sys.executable, "-c", FROM_PYTHON, *paths])
        return failure or compare(torch.load(folder / "outputs"), model.expected)


def _installed_runner() -> str:
    import trt_et.runtime

    return str(trt_et.runtime.runner_path())


def _in_runner(runner: str, model: Model) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name) / "output"
        command = [runner, "--model_path", str(model.program)]
        command += ["--inputs", ",".join(map(str, model.files)), "--output_file", str(base)]
        failure = _start([*command, "--num_executions", "20"])
        if failure:
            return failure
        found = [
            read_tensor(Path(f"{base}-{index}.bin"), entry)
            for index, entry in enumerate(model.outputs)
        ]
        return compare(found, model.expected)


def _start(command: list[str]) -> dict[str, Any] | None:
    """None, or how it failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=120, env=os.environ
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "why": "it did not end within 120 s"}
    if done.returncode == 0:
        return None
    return {"ok": False, "why": f"exit {done.returncode}", "said": done.stderr[-1500:]}


if __name__ == "__main__":
    sys.exit(main())
