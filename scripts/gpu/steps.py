"""The steps of ``scripts/gpu_check``, in the order in which they answer the questions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["ROOT", "Flavour", "Plan", "Step", "steps_of"]

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts" / "gpu"
LONG = 540  # Seconds: a machine may end whatever takes ten minutes.


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: What it answers; the questions are numbered as in docs/gpu.md.
        command: Program and arguments.
        limit: Seconds.
        needs: Programs that must exist.
        files: Files that must exist: what a step before made.
        variables: Added to the environment.
    """

    name: str
    command: list[str]
    limit: int = LONG
    needs: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Flavour:
    """A TensorRT whose headers and library are at hand; neither: the tests' fake.

    Attributes:
        name: ``"tensorrt"`` or ``"tensorrt_rtx"``, as blobs have it.
        headers: Folder with ``NvInfer.h``.
        library: The library, with a builder.
    """

    name: str
    headers: Path | None
    library: Path | None


PLAIN = Flavour("tensorrt", None, None)


@dataclass(frozen=True)
class Plan:
    """What is there to work with.

    Attributes:
        kit: What ``make gpu-kit`` made.
        output: Folder for everything.
        rehearse: Whether it is on simulated GPUs.
        python: The interpreter that has ExecuTorch and TensorRT-RTX.
        flavours: The TensorRTs of the native runtime.
    """

    kit: Path
    output: Path
    rehearse: bool
    python: Path
    flavours: list[Flavour]


def steps_of(plan: Plan) -> Iterator[Step]:
    """All steps."""
    variables = _variables(plan)
    if not plan.rehearse:
        yield Step("the GPU", ["nvidia-smi"], limit=60, needs=("nvidia-smi",))
    if plan.python != Path(sys.executable):
        # It comes without bytecode, and each step would compile all that it imports anew.
        compiled = ["-m", "compileall", "-qq", "-j", "0", "-x", "lib2to3.tests|py312_intrinsics"]
        folder = str(plan.python.parents[1] / "lib")
        yield Step("bytecode", [str(plan.python), *compiled, folder], variables=variables)
    yield from _native_build(plan, PLAIN, variables)
    builder = "reference" if plan.rehearse else "tensorrt_rtx"
    yield _python(
        plan,
        "question 1: engines built without a GPU, from Python, against eager",
        ["run_kit.py", plan.kit, plan.output / "question1.json", "--builder", builder],
        variables,
    )
    for flavour in plan.flavours:
        if flavour.headers:
            yield from _native_build(plan, flavour, variables)
    yield _python(
        plan,
        "question 2: the same in executor_runner",
        ["run_kit.py", plan.kit, plan.output / "question2.json", "--builder", builder, "--runner"],
        variables,
    )
    for flavour in plan.flavours:
        yield from _native_questions(plan, flavour, variables)
    yield _python(
        plan,
        "question 3: what a call of the kit's engines costs",
        ["costs.py", plan.kit, plan.output / "question3.json", "--builder", builder],
        variables,
    )
    yield _python(
        plan,
        "question 6: a program that ExecuTorch's CudaPartitioner shares with us",
        ["beside_cuda_partitioner.py", plan.output / "question6_cuda_partitioner.json"],
        variables,
    )
    pytest = [str(plan.python), "-m", "pytest", "-m", "gpu", "-q", "-rs", "-p", "no:cacheprovider"]
    tests = str(ROOT / "tests" / "gpu")
    yield Step("tests that need a GPU", [*pytest, tests], variables=variables)
    # This machine's own PyTorch, which knows its GPU.
    peers = [sys.executable, str(SCRIPTS / "peers.py"), str(plan.kit)]
    peers += [str(plan.output / "question5.json"), *(["--device", "cpu"] if plan.rehearse else [])]
    name = "question 5: eager and torch.compile on the same models"
    yield Step(name, peers, variables={"PYTHONPATH": _joined(ROOT, os.environ.get("PYTHONPATH"))})


def _native_build(plan: Plan, flavour: Flavour, variables: dict[str, str]) -> Iterator[Step]:
    build = _build_folder(plan, flavour)
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", f"-DPython3_EXECUTABLE={plan.python}"]
    configure.append("-DTRT_ET_BUILD_GPU_CHECK=ON")
    if flavour.headers:
        rtx = flavour.name == "tensorrt_rtx"
        configure.append(f"-DTRT_ET_GPU_CHECK_HEADERS={flavour.headers}")
        configure.append(f"-DTRT_ET_GPU_CHECK_RTX={'ON' if rtx else 'OFF'}")
        folder = "TENSORRT_RTX_INCLUDE_DIR" if rtx else "TENSORRT_INCLUDE_DIR"
        configure.append(f"-D{folder}={flavour.headers}")
    commands = {
        "configure": configure,
        "build": ["cmake", "--build", str(build)],
        "install": ["cmake", "--install", str(build), "--prefix", str(ROOT)],
    }
    for what, command in commands.items():
        name = f"{what} the native runtime, {_loader(flavour)}"
        yield Step(name, command, needs=("cmake", "ninja"), variables=variables)


def _native_questions(plan: Plan, flavour: Flavour, variables: dict[str, str]) -> Iterator[Step]:
    """Engines that are built here, in the native runtime."""
    kit = plan.output / f"{flavour.name}_kit"
    build = _build_folder(plan, flavour)
    native = build / "scripts" / "gpu" / "native"
    fake = build / "tests" / "runtime" / "tensorrt_fake"
    library = flavour.library or fake / "libfake_nvinfer.so"
    variables = variables | {"TRT_ET_TENSORRT_LIBRARY": str(library)}
    maker: list[object] = []
    if flavour.library:
        maker = ["--maker", native / "make_engine", "--library", library, "--name", flavour.name]
    named = f"{flavour.name} engines built here"
    yield _python(plan, named, ["make_native_kit.py", kit, *maker], variables)

    def ask(question: str, script: str, answer: str, *arguments: object) -> Step:
        result = plan.output / f"{answer}.json"
        command = [script, kit, result, "--builder", flavour.name, *arguments]
        return _python(plan, question, command, variables, files=(kit / "kit.json",))

    two, three = f"question2_{flavour.name}", f"question3_{flavour.name}"
    yield ask(f"question 2: {named}, in executor_runner", "run_kit.py", two, "--runner")
    yield ask(f"question 2: {named}, in Python", "run_kit.py", f"{two}_python")
    tool = ("--tool", native / "engine_costs")
    yield ask(f"question 3: {named}, beside the bare API", "native_costs.py", three, *tool)
    yield ask(f"question 3: {named}, memory of several methods", "memory.py", f"{three}_memory")
    name = f"question 6: {named}, between copies on the legacy stream, and in two threads"
    yield ask(name, "stream_order.py", f"question6_{flavour.name}", *tool)
    for checker in ("memcheck", "racecheck"):
        question = f"question 4: {named}, compute-sanitizer {checker}"
        run = ask(question, "run_kit.py", f"question4_{flavour.name}_{checker}", "--runner")
        sanitizer = ["compute-sanitizer", "--target-processes", "all", "--tool", checker]
        command = [*sanitizer, "--error-exitcode", "3", *run.command]
        yield replace(run, command=command, needs=("compute-sanitizer",))


def _python(
    plan: Plan,
    name: str,
    arguments: list[object],
    variables: dict[str, str],
    files: tuple[Path, ...] = (),
) -> Step:
    script, *rest = map(str, arguments)
    command = [str(plan.python), str(SCRIPTS / script), *rest]
    return Step(name, command, files=files, variables=variables)


def _build_folder(plan: Plan, flavour: Flavour) -> Path:
    return plan.output / ("build_" + _loader(flavour).replace(" ", "_"))


def _loader(flavour: Flavour) -> str:
    return f"with the headers of {flavour.name}" if flavour.headers else "as pip builds it"


def _variables(plan: Plan) -> dict[str, str]:
    variables = {"TRT_ET_CUDA": "simulated:2" if plan.rehearse else "real"}
    if plan.python == Path(sys.executable):
        variables["PYTHONPATH"] = _joined(ROOT, os.environ.get("PYTHONPATH"))
    else:
        # The kit's own Python shall see nothing of this machine's.
        variables["PYTHONPATH"] = str(ROOT)
        library = plan.python.parents[1] / "lib"
        variables["LD_LIBRARY_PATH"] = _joined(library, os.environ.get("LD_LIBRARY_PATH"))
    runtime = _cuda_runtime()
    if runtime is not None and "TRT_ET_CUDART_LIBRARY" not in os.environ:
        variables["TRT_ET_CUDART_LIBRARY"] = str(runtime)
    return variables


def _joined(first: Path, more: str | None) -> str:
    return os.pathsep.join(filter(None, [str(first), more]))


def _cuda_runtime() -> Path | None:
    """PyTorch's own, or the toolkit's: the plugin looks beside itself and where the loader does."""
    folders = [Path(path) / "nvidia" / "cu13" / "lib" for path in sys.path if path]
    folders += [Path(path) / "nvidia" / "cuda_runtime" / "lib" for path in sys.path if path]
    folders += [Path("/usr/local/cuda/lib64")]
    for folder in folders:
        for name in ("libcudart.so.13", "libcudart.so.12"):
            if (folder / name).is_file():
                return folder / name
    return None
