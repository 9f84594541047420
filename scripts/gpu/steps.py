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
        needs: Programs that must exist, beside the command's own.
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
    """All steps; first those that take the first part of the kit alone (docs/gpu.md)."""
    variables = _variables(plan)
    builder = "reference" if plan.rehearse else "tensorrt_rtx"
    if not plan.rehearse:
        yield Step("the GPU", ["nvidia-smi"], limit=60)
    carried = _carried_engines(plan)
    name = "questions 1 and 2: the kit's programs in the executor_runner that came along"
    programs = replace(carried, kit=plan.kit, builder=builder)
    yield programs.ask(name, "run_kit.py", "question1", *programs.runner)
    yield from _native_questions(carried)
    # This machine's own PyTorch, which knows its GPU.
    peers = [sys.executable, str(SCRIPTS / "peers.py"), str(plan.kit)]
    peers += [str(plan.output / "question5.json"), *(["--device", "cpu"] if plan.rehearse else [])]
    name = "question 5: eager and torch.compile on the same models"
    yield Step(name, peers, variables={"PYTHONPATH": _joined(ROOT, os.environ.get("PYTHONPATH"))})
    yield from _sanitizers(carried)
    if plan.python != Path(sys.executable):
        # It comes without bytecode, and each step would compile all that it imports anew.
        compiled = ["-m", "compileall", "-qq", "-j", "0", "-x", "lib2to3.tests|py312_intrinsics"]
        folder = str(plan.python.parents[1] / "lib")
        yield Step("bytecode", [str(plan.python), *compiled, folder], variables=variables)
    yield from _native_build(plan, PLAIN, variables)
    installed = Engines("the kit's programs", builder, plan.kit, plan, "installed", variables)
    yield installed.ask(
        "question 1: the kit's programs from Python, against eager", "run_kit.py", "question1"
    )
    for flavour in plan.flavours:
        if flavour.headers:
            yield from _native_build(plan, flavour, variables)
    yield installed.ask(
        "question 2: the same in executor_runner", "run_kit.py", "question2", "--runner"
    )
    for flavour in plan.flavours:
        built = _built_engines(plan, flavour, variables)
        yield _make_engines(built, flavour)
        yield from _native_questions(built)
        yield built.ask(f"question 2: {built.named}, in Python", "run_kit.py", "question2_python")
        name = f"question 3: {built.named}, memory of several methods"
        yield built.ask(name, "memory.py", "question3_memory")
        yield from _sanitizers(built)
    yield installed.ask(
        "question 3: what a call of the kit's programs costs", "costs.py", "question3"
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


@dataclass(frozen=True)
class Engines:
    """A kit, and what asks questions of its engines.

    Attributes:
        named: In the steps' names.
        builder: Whose engines.
        kit: The kit.
        plan: Of the Python that asks.
        answers: In the names of the answers' files.
        variables: Added to the environment.
        tool: The program ``engine_costs``.
        runner: Arguments of ``run_kit.py`` for its executor_runner.
    """

    named: str
    builder: str
    kit: Path
    plan: Plan
    answers: str
    variables: dict[str, str]
    tool: Path | None = None
    runner: tuple[object, ...] = ("--runner",)

    def ask(self, name: str, script: str, answer: str, *arguments: object) -> Step:
        """A step that runs a script on the kit."""
        result = self.plan.output / f"{answer}_{self.answers}.json"
        command = [script, self.kit, result, "--builder", self.builder, *arguments]
        return _python(self.plan, name, command, self.variables, files=(self.kit / "kit.json",))


def _carried_engines(plan: Plan) -> Engines:
    """Engines and tools that came along: nothing is built, and Python needs no ExecuTorch."""
    native = plan.kit / "native"
    runtime = native / "trt_et" / "runtime"
    library = native / "tensorrt_rtx_libs" / "libtensorrt_rtx.so.1"
    if plan.rehearse:
        library = native / "libfake_tensorrt_rtx.so"
    if not plan.python.is_file():  # The kit's is still to come.
        plan = replace(plan, python=Path(sys.executable))
    variables = _variables(plan) | {
        "TRT_ET_PROVIDER_PATH": str(runtime / "lib"),
        "TRT_ET_TENSORRT_LIBRARY": str(library),
    }
    return Engines(
        named="tensorrt_rtx engines that came along",
        builder="tensorrt_rtx",
        kit=plan.kit / ("rehearsal" if plan.rehearse else "engines"),
        plan=plan,
        answers="carried",
        variables=variables,
        tool=native / "engine_costs",
        runner=("--runner", runtime / "bin" / "executor_runner"),
    )


def _built_engines(plan: Plan, flavour: Flavour, variables: dict[str, str]) -> Engines:
    """Engines that are built here, in the native runtime."""
    build = _build_folder(plan, flavour)
    fake = build / "tests" / "runtime" / "tensorrt_fake" / "libfake_nvinfer.so"
    return Engines(
        named=f"{flavour.name} engines built here",
        builder=flavour.name,
        kit=plan.output / f"{flavour.name}_kit",
        plan=plan,
        answers=flavour.name,
        variables=variables | {"TRT_ET_TENSORRT_LIBRARY": str(flavour.library or fake)},
        tool=build / "scripts" / "gpu" / "native" / "engine_costs",
    )


def _make_engines(engines: Engines, flavour: Flavour) -> Step:
    how: list[object] = ["--fake"]
    if flavour.library and engines.tool:
        maker = engines.tool.with_name("make_engine")
        how = ["--maker", maker, "--library", flavour.library]
    command = ["make_native_kit.py", engines.kit, "--name", flavour.name, *how]
    return _python(engines.plan, engines.named, command, engines.variables)


def _native_questions(engines: Engines) -> Iterator[Step]:
    tool = ("--tool", engines.tool)
    name = f"question 2: {engines.named}, in executor_runner"
    yield engines.ask(name, "run_kit.py", "question2", *engines.runner)
    name = f"question 3: {engines.named}, beside the bare API"
    yield engines.ask(name, "native_costs.py", "question3", *tool)
    name = f"question 6: {engines.named}, between copies on the legacy stream, and in two threads"
    yield engines.ask(name, "stream_order.py", "question6", *tool)


def _sanitizers(engines: Engines) -> Iterator[Step]:
    for checker in ("memcheck", "racecheck"):
        name = f"question 4: {engines.named}, compute-sanitizer {checker}"
        run = engines.ask(name, "run_kit.py", f"question4_{checker}", *engines.runner)
        sanitizer = ["compute-sanitizer", "--target-processes", "all", "--tool", checker]
        yield replace(run, command=[*sanitizer, "--error-exitcode", "3", *run.command])


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
        needs = ("cmake", "ninja", str(plan.python))
        yield Step(name, command, needs=needs, variables=variables)


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
    libraries = []
    if plan.python == Path(sys.executable):
        variables["PYTHONPATH"] = _joined(ROOT, os.environ.get("PYTHONPATH"))
    else:
        # The kit's own Python shall see nothing of this machine's.
        variables["PYTHONPATH"] = str(ROOT)
        libraries.append(plan.python.parents[1] / "lib")
    runtime = _cuda_runtime()
    if runtime is not None:
        variables["TRT_ET_CUDART_LIBRARY"] = os.environ.get("TRT_ET_CUDART_LIBRARY", str(runtime))
        # TensorRT-RTX may want libnvrtc, which lies there, too.
        libraries.append(runtime.parent)
    variables["LD_LIBRARY_PATH"] = _joined(*libraries, os.environ.get("LD_LIBRARY_PATH"))
    return variables


def _joined(*paths: Path | str | None) -> str:
    return os.pathsep.join(str(path) for path in paths if path)


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
