"""What may bring code into a process: nothing that lies in the current folder or in a file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.native_environment import environment
from trt_et.runtime import plugin_path, runner_path

# Names of libraries that the plugin looks for.
DECOYS = [
    "libcuda.so.1",
    "libcudart.so.13",
    "libcudart.so.12",
    "libnvinfer.so.11",
    "libnvinfer_lean.so.11",
    "libtensorrt_rtx.so.1",
    "libtrt_et_simulation.so",
    "libtrt_et_tensorrt_11.so",
    "libtrt_et_tensorrt_rtx.so",
    "libexecutorch.so",
]


def lines_of_all_libraries(option: str, *words: str) -> list[list[str]]:
    """The words of readelf's lines with one of ``words``, from all libraries and the runner."""
    files = [*plugin_path().parent.glob("*.so"), runner_path()]
    assert len(files) > 2
    shown = subprocess.run(
        ["readelf", option, "-W", *files], capture_output=True, text=True, check=True
    ).stdout
    return [line.split() for line in shown.splitlines() if any(word in line for word in words)]


def test_libraries_look_for_others_in_fixed_folders_only() -> None:
    for *_, folders in lines_of_all_libraries("-d", "RPATH", "RUNPATH"):
        for folder in folders.strip("[]").split(":"):
            assert folder.startswith(("$ORIGIN", "/")), folders


def test_no_library_asks_for_an_executable_stack() -> None:
    """The C library of glibc 2.41 and later refuses to load one."""
    stacks = lines_of_all_libraries("-l", "GNU_STACK")
    assert len(stacks) > 2
    assert {stack[-2] for stack in stacks} == {"RW"}


@pytest.fixture
def decoys(tmp_path: Path) -> Path:
    """A current folder with libraries of those names, which leave a mark when they are loaded."""
    source = tmp_path / "decoy.c"
    source.write_text(
        "#include <stdio.h>\n"
        "__attribute__((constructor)) static void loaded(void) {\n"
        f'  FILE* file = fopen("{tmp_path}/loaded", "w");\n'
        "  if (file) fclose(file);\n}\n"
    )
    folder = tmp_path / "current"
    folder.mkdir()
    subprocess.run(
        ["cc", "-shared", "-fPIC", source, "-o", folder / "decoy.so"], check=True, timeout=600
    )
    for name in DECOYS:
        (folder / name).symlink_to(folder / "decoy.so")
    return folder


@pytest.mark.parametrize("cuda", ["real", "simulated"])
def test_no_library_is_taken_out_of_the_current_folder(decoys: Path, cuda: str) -> None:
    model = decoys / "model.pte"
    model.write_bytes(b"no program")
    subprocess.run(
        [str(runner_path()), "--model_path", str(model), f"--cuda={cuda}"],
        cwd=decoys,
        env=environment(LD_LIBRARY_PATH=None),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert not (decoys.parent / "loaded").exists()
