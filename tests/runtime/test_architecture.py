"""The folders of the C++ runtime depend on each other in one direction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.native_environment import ROOT

RUNTIME = ROOT / "trt_et/runtime"
# What each folder of src/ may include beside itself and the public headers.
BELOW = {
    "common": set(),
    "blob": {"common"},
    "cuda": {"common"},
    "engine": {"common", "blob", "cuda"},
    "delegate": {"common", "blob", "cuda", "engine"},
    "plugin": {"common", "blob", "cuda", "engine", "delegate"},
    # A library of its own, which knows no more of us than the interface of a provider.
    "tensorrt": {"common"},
    # Likewise: simulated GPUs, outside of src/. It implements the table of cuda/.
    "simulation": {"common", "cuda"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def sources(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in (".h", ".cpp"))


def includes(root: Path) -> Iterator[tuple[str, str]]:
    """Each file below ``root`` with each file that it includes, both named from ``root``."""
    src, simulation = root / "src", root / "simulation"
    for path in sources(root):
        for name in INCLUDE.findall(path.read_text()):
            folders = (path.parent, src, root / "include", simulation, simulation / "include")
            found = [folder / name for folder in folders if (folder / name).is_file()]
            if not found:
                raise AssertionError(f"{path.relative_to(root)} includes {name}: no such file")
            yield str(path.relative_to(root)), str(found[0].resolve().relative_to(root.resolve()))


def folder_of(file: str) -> str:
    """``src/FOLDER/...`` is in FOLDER; of the rest, the first part counts."""
    first, second, *_ = Path(file).parts
    return second if first == "src" else first


def upwards(root: Path) -> set[str]:
    """The includes that go to a folder which is not below."""
    return {
        f"{one} -> {other}".replace("src/", "")
        for one, other in includes(root)
        if folder_of(one) in BELOW
        and folder_of(other) not in BELOW[folder_of(one)] | {folder_of(one), "include"}
    }


def order(root: Path) -> list[str]:
    """The folders, from those that need no other one upwards. Raises CycleError on a circle."""
    graph: dict[str, set[str]] = {}
    for one, other in includes(root):
        start, end = folder_of(one), folder_of(other)
        if start != end:
            graph.setdefault(start, set()).add(end)
    return list(TopologicalSorter(graph).static_order())


def test_every_folder_has_its_place() -> None:
    found = {path.name for path in (RUNTIME / "src").iterdir() if path.is_dir()}
    assert found | {"simulation"} == BELOW.keys()


def test_no_folder_includes_one_that_is_not_below() -> None:
    assert upwards(RUNTIME) == set()


def test_the_folders_have_an_order() -> None:
    found = order(RUNTIME)
    for folder, below in BELOW.items():
        assert all(found.index(other) < found.index(folder) for other in below if other in found)


def test_no_file_includes_itself_through_others() -> None:
    graph: dict[str, set[str]] = {}
    for one, other in includes(RUNTIME):
        graph.setdefault(one, set()).add(other)
    TopologicalSorter(graph).prepare()


def test_the_plugin_does_not_include_what_simulates_gpus() -> None:
    """It is a library of its own, which is opened by its name."""
    wrong = [pair for pair in includes(RUNTIME) if folder_of(pair[1]) == "simulation"]
    assert not [pair for pair in wrong if folder_of(pair[0]) != "simulation"]
    for header in (RUNTIME / "include").rglob("*.h"):
        assert "trt_et_sim" not in header.read_text(), header


def test_the_public_headers_and_the_runner_include_nothing_of_the_source() -> None:
    outside = {"include", "runner"}
    wrong = [pair for pair in includes(RUNTIME) if folder_of(pair[0]) in outside]
    assert not [pair for pair in wrong if folder_of(pair[1]) not in outside]
