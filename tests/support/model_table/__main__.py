"""Exports every model of the table in a process of its own, and writes the table.

python -m tests.support.model_table FOLDER [NAME ...]

Results are files in FOLDER; a model that has its result there does not run again. The table is
``docs/models.md``; its other rows stay as they are if the versions are the same. Processes are
forked from one that has imported what all of them need.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from itertools import product
from pathlib import Path
from typing import Any

import torch

from tests.support.forked import in_child
from tests.support.model_table.models import KINDS
from tests.support.model_table.report import write
from tests.support.simulated_gpus import load_runtime
from trt_et.inspection import inspect_program

BUILDERS = ("reference", "tensorrt_rtx")


def main(folder: Path, *names: str) -> int:
    """Run the models without a result, write the table, and return how many are not right."""
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for number, (kind, (members, _)) in enumerate(KINDS.items()):
        for name, builder in product(members, BUILDERS):
            file = folder / f"{number}_{name.replace(' ', '_')}_{builder}.json"
            if not file.exists() and (not names or name in names):
                _run_in_child(file, kind, name, builder)
            if file.exists():
                result = results.setdefault((kind, name), {"kind": kind, "name": name})
                result[builder] = json.loads(file.read_text())
    order = [(kind, name) for kind, (members, _) in KINDS.items() for name in members]
    return write([results[key] for key in order if key in results], order)


def _run_in_child(file: Path, kind: str, name: str, builder: str) -> None:
    def run() -> None:
        try:
            result = _run(kind, name, builder)
        except BaseException as error:
            traceback.print_exc()
            result = {"problem": f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"}
        file.write_text(json.dumps(result))

    start = time.monotonic()
    status = in_child(run)
    if not file.exists():
        file.write_text(json.dumps({"problem": f"the process ended with {status}"}))
    sys.stdout.write(f"{name}, {builder}: {time.monotonic() - start:.0f} s\n")


def _run(kind: str, name: str, builder: str) -> dict[str, Any]:
    load_runtime()
    model = KINDS[kind][1](name)
    weights = {weight.data_ptr(): weight.nbytes for weight in model.module.state_dict().values()}
    pte = model.export(builder)
    methods = inspect_program(pte)
    result: dict[str, Any] = {
        "engines": {m.name: len(m.delegates) for m in methods if m.delegates},
        "cpu": {m.name: m.operator_calls for m in methods if m.operator_calls},
        "file": len(pte),
        "weights": sum(weights.values()),
    }
    if problems := [str(d.problem) for m in methods for d in m.delegates if d.problem]:
        result["problem"] = problems[0]
    elif builder == "reference":
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            try:
                result["equal"] = model.compare(pte, Path(folder))
            except AssertionError as error:
                result["problem"] = f"different: {str(error).strip().splitlines()[0]}"
    return result


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]) > 0)
