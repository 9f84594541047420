"""The folders of the C++ runtime include each other in one direction."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.native_environment import ROOT

RUNTIME = ROOT / "trt_et/runtime"
# The folders, and what each may include beside itself and the public headers. In an order: a
# folder may include those above it only.
BELOW: dict[str, set[str]] = {
    "include": set(),
    "runner": set(),
    "common": set(),
    "blob": {"common"},
    "cuda": {"common"},
    "engine": {"common", "blob", "cuda"},
    "delegate": {"common", "blob", "cuda", "engine"},
    "ops": {"common"},
    "plugin": {"common", "blob", "cuda", "engine", "delegate", "ops"},
    # A library of its own, which knows no more of us than the interface of a provider, and the
    # checksum of blob/.
    "tensorrt": {"common", "blob"},
    # Simulated GPUs, another library, implement the table of cuda/.
    "simulation": {"common", "cuda"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def folder_of(file: Path) -> str:
    """``src/FOLDER/...`` is in FOLDER; of the rest, the first part counts."""
    first, second, *_ = file.relative_to(RUNTIME).parts
    return second if first == "src" else first


def test_no_folder_includes_one_that_is_not_below():
    roots = [
        RUNTIME / name
        for name in ("src", "src/tensorrt", "include", "simulation", "simulation/include")
    ]
    files = [file for ending in ("h", "cpp") for file in RUNTIME.rglob(f"*.{ending}")]
    assert {folder_of(file) for file in files} == BELOW.keys()
    for file in files:
        here = folder_of(file)
        for name in INCLUDE.findall(file.read_text()):
            found = [root / name for root in (file.parent, *roots) if (root / name).is_file()]
            assert found, f"{file} includes {name}: no such file"
            other = folder_of(found[0].resolve())
            allowed = other in BELOW[here] | {here, "include"}
            assert allowed, f"{file.relative_to(RUNTIME)} includes {name}"
    for header in (RUNTIME / "include").rglob("*.h"):
        assert "trt_et_sim" not in header.read_text(), header
