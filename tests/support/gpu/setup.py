"""The programs and tools that tests/gpu use.

``scripts/gpu_check`` writes them to the JSON file that ``GPU_CHECK_SETUP`` names, since a machine
with a GPU may have neither ExecuTorch nor a compiler. Without that variable the tests build them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.native_environment import ROOT, build, run


@dataclass(frozen=True)
class Setup:
    """Paths are absolute."""

    models: str  # Kit of the tests' models; "" if the library cannot run them.
    models_builder: str  # "tensorrt_rtx", or "reference" in a rehearsal.
    engines: str  # Kit of the native models.
    engines_builder: str  # "tensorrt" or "tensorrt_rtx".
    operators: str  # Kit of operators; "" if the library cannot run them.
    operators_builder: str  # As models_builder.
    library: str  # The TensorRT of those engines.
    runner: str  # executor_runner.
    probe: str  # gpu_probe.
    results: str  # Folder for the answers, as JSON.
    cuda: str = "real"  # TRT_ET_CUDA for everything.

    @property
    def is_rehearsal(self) -> bool:
        """Return whether GPUs are simulated."""
        return self.cuda != "real"

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment of a program under test."""
        own = {"TRT_ET_CUDA": self.cuda, "TRT_ET_TENSORRT_LIBRARY": self.library}
        own["TRT_ET_ANY_GPU"] = "1"  # What it does there is the question.
        return {**os.environ, **own, **changes}

    def link_providers(self) -> None:
        """Put the provider libraries beside the probe, which contains the plugin."""
        runner = Path(self.runner)
        for folder in (runner.parents[1] / "lib", runner.parent):  # Installed, or built here.
            for provider in folder.glob("libtrt_et_tensorrt_*.so"):
                link = Path(self.probe).parent / provider.name
                if not link.exists():
                    link.symlink_to(provider)

    def run(
        self, *command: object, timeout: int = 200, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program under test."""
        return run(*command, env=self.environment() if env is None else env, timeout=timeout)


def can_run() -> bool:
    """Return whether there is a GPU or a setup; PyTorch may have been built without CUDA."""
    if os.environ.get("GPU_CHECK_SETUP"):
        return True
    tool = shutil.which("nvidia-smi")
    return tool is not None and subprocess.run([tool, "-L"], capture_output=True).returncode == 0


def read_setup(folder: Path) -> Setup:
    """Return the setup that the environment names, or build one in a folder."""
    if path := os.environ.get("GPU_CHECK_SETUP"):
        return Setup(**json.loads(Path(path).read_text()))
    import tensorrt_rtx_libs

    import trt_et.runtime
    from tests.support.gpu.make_kit import make_engines, make_models, make_operators

    build(
        ROOT / "build/gpu",
        ["gpu_probe"],
        *("-DTRT_ET_BUILD_GPU_CHECK=ON", "-DTRT_ET_GPU_CHECK_RTX=ON"),
    )
    make_models(folder / "models", ("tensorrt_rtx", "onnx"))
    make_engines(folder / "engines", "tensorrt_rtx", "tensorrt_rtx")
    make_operators(folder / "operators")
    return Setup(
        models=str(folder / "models"),
        models_builder="tensorrt_rtx",
        engines=str(folder / "engines"),
        engines_builder="tensorrt_rtx",
        operators=str(folder / "operators"),
        operators_builder="tensorrt_rtx",
        library=str(Path(tensorrt_rtx_libs.__path__[0]) / "libtensorrt_rtx.so.1"),
        runner=str(trt_et.runtime.runner_path()),
        probe=str(ROOT / "build/gpu/tests/gpu/native/gpu_probe"),
        results=str(folder),
    )


def write_setup(setup: Setup, path: Path) -> None:
    """Write a setup for ``GPU_CHECK_SETUP``."""
    path.write_text(json.dumps(asdict(setup), indent=2) + "\n")
