"""Runs peers' tests, and writes docs/peer-tests.md.

TORCH_TENSORRT=CHECKOUT [EXECUTORCH=CHECKOUT] python -m tests.support.peers [RESULTS]

A case that ends its process, or takes longer than LIMIT seconds, loses itself alone.
A second run goes on where the first stopped. `--every N` takes each n-th case and writes nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.support.native_environment import ROOT, environment
from tests.support.peers import report


def folders() -> dict[str, Path]:
    checkout = os.environ.get("TORCH_TENSORRT")
    installed = find_spec("executorch").submodule_search_locations[0]
    found = {
        "torch_tensorrt": Path(checkout or "unset") / "tests/py/dynamo/conversion",
        "executorch": Path(os.environ.get("EXECUTORCH") or installed)
        / "backends/test/suite/models",
    }
    missing = [str(folder) for folder in found.values() if not folder.is_dir()]
    if missing:
        raise SystemExit(
            f"{missing[0]} is missing. Set TORCH_TENSORRT to a checkout of pytorch/TensorRT of the "
            "installed version, and EXECUTORCH to one of pytorch/executorch if the installed "
            "package's suite is not to run."
        )
    return found


def run(tests: Path, results: Path, options: list[str]) -> None:
    """Run the cases of a folder that the results do not have yet."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.peers.plugin", "-q"]
    command += ["-p", "no:cacheprovider", "--noconftest", "--continue-on-collection-errors"]
    command += ["-W", "ignore", "-c", os.devnull, "--rootdir", str(tests), "--peers", str(results)]
    variables = {"OMP_NUM_THREADS": "1", **environment()}
    with results.with_suffix(".log").open("w") as log:
        subprocess.run([*command, *options, str(tests)], env=variables, stdout=log, stderr=log)


def main(arguments: list[str]) -> None:
    results = Path(arguments[0] if arguments else ROOT / "build/peers").resolve()
    tests = folders()
    results.mkdir(parents=True, exist_ok=True)
    for name, folder in tests.items():
        run(folder, results / f"{name}.jsonl", arguments[1:])
    found = [results / f"{name}.jsonl" for name in tests]
    raise SystemExit(report.main(found, write="--every" not in arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
