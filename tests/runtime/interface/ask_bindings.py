"""Compares slots.def with the calls of TensorRT's own Python bindings, without GPU and driver.

::

    python tests/runtime/interface/ask_bindings.py                    # what is installed
    python tests/runtime/interface/ask_bindings.py tensorrt-rtx-cu13==1.7.1.116 ...

The second form downloads the bindings and the library of each package into a temporary folder.

Each question has a process of its own. The bindings get an object of our making, and each slot of
its table of virtual functions writes its own number and ends the process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SLOTS = HERE.parents[2] / "trt_et" / "runtime" / "src" / "tensorrt" / "interface" / "slots.def"

# What makes the bindings call each method: `x` is the object, `trt` the module.
QUESTIONS = {
    "Runtime": {
        "deserializeCudaEngine": "x.deserialize_cuda_engine(b'abc')",
        "setDLACore": "setattr(x, 'DLA_core', 1)",
        "getNbDLACores": "x.num_DLA_cores",
        "setEngineHostCodeAllowed": "setattr(x, 'engine_host_code_allowed', True)",
    },
    "PluginRegistry": {"loadLibrary": "x.load_library('a')"},
    "CudaEngine": {
        "createExecutionContext": "x.create_execution_context()",
        "getNbOptimizationProfiles": "x.num_optimization_profiles",
        "getTensorShape": "x.get_tensor_shape('a')",
        "getTensorDataType": "x.get_tensor_dtype('a')",
        "getTensorLocation": "x.get_tensor_location('a')",
        "getTensorIOMode": "x.get_tensor_mode('a')",
        "getTensorFormat": "x.get_tensor_format('a')",
        "getProfileShape": "x.get_tensor_profile_shape('a', 0)",
        "getNbIOTensors": "x.num_io_tensors",
        "getStreamableWeightsSize": "x.streamable_weights_size",
        "setWeightStreamingBudgetV2": "setattr(x, 'weight_streaming_budget_v2', 1)",
        "getWeightStreamingAutomaticBudget": "x.get_weight_streaming_automatic_budget()",
        "getDeviceMemorySizeV2": "x.device_memory_size_v2",
        "getAliasedInputTensor": "x.get_aliased_input_tensor('a')",
        "createExecutionContextWithRuntimeConfig": (
            "x.create_execution_context(made(trt.IRuntimeConfig))"
        ),
        "createRuntimeConfig": "x.create_runtime_config()",
    },
    "ExecutionContext": {
        "setProfiler": "setattr(x, 'profiler', trt.Profiler())",
        "setOptimizationProfileAsync": "x.set_optimization_profile_async(0, 1)",
        "setEnqueueEmitsProfile": "setattr(x, 'enqueue_emits_profile', True)",
        "setInputShape": "x.set_input_shape('a', (1, 2))",
        "getTensorShape": "x.get_tensor_shape('a')",
        "setTensorAddress": "x.set_tensor_address('a', 256)",
        "inferShapes": "x.infer_shapes()",
        "setOutputAllocator": "x.set_output_allocator('a', None)",
        "enqueueV3": "x.execute_async_v3(1)",
        "setDeviceMemoryV2": "x.set_device_memory(256, 1)",
        "isStreamCapturable": "x.is_stream_capturable(1)",
    },
    "HostMemory": {"size": "x.nbytes"},
    "RuntimeConfig": {
        "setExecutionContextAllocationStrategy": (
            "x.set_execution_context_allocation_strategy("
            "trt.ExecutionContextAllocationStrategy.STATIC)"
        ),
        "createRuntimeCache": "x.create_runtime_cache()",
        "setRuntimeCache": "x.set_runtime_cache(made(trt.IRuntimeCache))",
        "setCudaGraphStrategy": (
            "setattr(x, 'cuda_graph_strategy', trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE)"
        ),
    },
    "RuntimeCache": {
        "serialize": "x.serialize()",
        "deserialize": "x.deserialize(b'abc')",
    },
    "Builder": {
        "createBuilderConfig": "x.create_builder_config()",
        "createNetworkV2": "x.create_network(1)",
        "createOptimizationProfile": "x.create_optimization_profile()",
        "buildSerializedNetwork": (
            "x.build_serialized_network(made(trt.INetworkDefinition), made(trt.IBuilderConfig))"
        ),
    },
    "NetworkDefinition": {
        "getNbInputs": "x.num_inputs",
        "getInput": "x.get_input(0)",
        "getNbOutputs": "x.num_outputs",
        "getOutput": "x.get_output(0)",
        "addElementWise": (
            "x.add_elementwise(made(trt.ITensor), made(trt.ITensor), trt.ElementWiseOperation.SUM)"
        ),
        "getNbLayers": "x.num_layers",
        "getLayer": "x.get_layer(0)",
        "addConstant": "x.add_constant((1,), trt.Weights(trt.float32, 0, 0))",
    },
    "Layer": {
        "getType": "x.type",
        "getNbInputs": "x.num_inputs",
        "getInput": "x.get_input(0)",
        "getOutput": "x.get_output(0)",
        "setInput": "x.set_input(0, made(trt.ITensor))",
    },
    "Tensor": {"getName": "x.name", "getDimensions": "x.shape", "getType": "x.dtype"},
    "OptimizationProfile": {"setDimensions": "x.set_shape('a', (1,), (1,), (1,))"},
    "BuilderConfig": {
        "setFlag": "x.set_flag(trt.BuilderFlag.TF32)",
        "addOptimizationProfile": "x.add_optimization_profile(made(trt.IOptimizationProfile))",
        "setMemoryPoolLimit": "x.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1)",
        "setBuilderOptimizationLevel": "setattr(x, 'builder_optimization_level', 1)",
        "setProgressMonitor": "setattr(x, 'progress_monitor', made(trt.IProgressMonitor))",
    },
    "OnnxParser": {
        "parse": "x.parse(b'abc')",
        "getNbErrors": "x.num_errors",
        "getError": "x.get_error(0)",
        "getUsedVCPluginLibraries": "x.get_used_vc_plugin_libraries()",
        "loadModelProto": "x.load_model_proto(b'abc')",
        "loadInitializer": "x.load_initializer('a', 1, 1)",
        "parseModelProto": "x.parse_model_proto()",
    },
    "ParserError": {
        "desc": "x.desc()",
        "nodeName": "x.node_name()",
        "nodeOperator": "x.node_operator()",
    },
}
# The lean runtime builds nothing.
BUILDING = (
    *("Builder", "NetworkDefinition", "Layer", "Tensor", "OptimizationProfile", "BuilderConfig"),
    *("OnnxParser", "ParserError", "ProgressMonitor"),
)
# They have no question: the bindings reach data() only after other calls.
UNASKED = {("HostMemory", "data")}

# Python's methods behind the tables that TensorRT calls, and arguments for them.
CALLBACKS = {
    ("Logger", "log"): ("log", [1, b"text"]),
    ("Profiler", "reportLayerTime"): ("report_layer_time", [b"layer", 0.5]),
    ("OutputAllocator", "reallocateOutputAsync"): (
        "reallocate_output_async",
        [b"name", None, 64, 256, 1],
    ),
    ("OutputAllocator", "notifyShape"): ("notify_shape", [b"name", bytes(72)]),
    ("ProgressMonitor", "phaseStart"): ("phase_start", [b"phase", b"parent", 3]),
    ("ProgressMonitor", "stepComplete"): ("step_complete", [b"phase", 1]),
    ("ProgressMonitor", "phaseFinish"): ("phase_finish", [b"phase"]),
}

# Its arguments are the module and a JSON list of calls of these functions; it prints the answers.
CHILD = """
import ctypes, importlib, json, os, signal, sys
trt = importlib.import_module(sys.argv[1])
kept = []

def made(kind):
    x = kind.__new__(kind)
    ctypes.c_void_p.from_address(id(x) + 16).value = ctypes.addressof(outer)
    return x

def ask(kind, question, engine_slot, count_slot):
    global outer
    def slot(number):
        def called(*_):
            # infer_shapes() asks its engine for the number of tensors first.
            if "infer_shapes" in question and number in (engine_slot, count_slot):
                return ctypes.addressof(outer) if number == engine_slot else 0
            os.write(1, str(number).encode())
            os._exit(0)
        function = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 5)(called)
        kept.append(function)
        return ctypes.cast(function, ctypes.c_void_p).value

    table = (ctypes.c_void_p * 100)(*map(slot, range(100)))
    implementation = (ctypes.c_void_p * 8)(ctypes.addressof(table))
    # The table of a class that has nothing behind it, and the implementation of the others.
    outer = (ctypes.c_void_p * 8)(ctypes.addressof(table), ctypes.addressof(implementation))
    x = made(getattr(trt, kind, None) or getattr(trt, kind[1:]))
    eval(question)

def call(kind, method, slot, arguments):
    base = getattr(trt, kind)
    def called(self, *_):
        os.write(1, method.encode())
        os._exit(0)
    methods = {"__init__": lambda self: base.__init__(self), method: called}
    x = type("Derived", (base,), methods)()
    this = ctypes.c_void_p.from_address(id(x) + 16).value
    table = ctypes.c_void_p.from_address(this).value
    function = ctypes.c_void_p.from_address(table + 8 * slot).value
    arguments = eval(arguments)
    types = {int: ctypes.c_int64, float: ctypes.c_float}
    kinds = [types.get(type(argument), ctypes.c_char_p) for argument in arguments]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, *kinds)(function)(this, *arguments)

def answer(function, *arguments):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.dup2(writer, 1)
        try:
            globals()[function](*arguments)
        except BaseException as error:
            os.write(1, repr(error)[:120].encode())
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    text = os.read(reader, 200).decode()
    os.close(reader)
    return text or f"no answer, status {status}"

answers = [answer(*question) for question in json.loads(sys.argv[2])]
print(json.dumps([trt.__version__, answers]))
"""


def slots(layout: int, rtx: bool) -> dict[tuple[str, str], tuple[int, int]]:
    """Slot and first minor version by class and method, as slots.def has them."""
    text = SLOTS.read_text()
    found = {}
    for line in re.findall(r"^TRT_ET_SLOT\((\w+), (\w+), (\d+), (\d+),\s*(\d+),", text, re.M):
        of_10, since, of_11 = map(int, line[2:])
        found[line[0], line[1]] = (of_10, since) if layout == 10 else (of_11, 0)
    if rtx:
        for line in re.findall(r"^TRT_ET_RTX_SLOT\((\w+), (\w+), (\d+),", text, re.M):
            found[line[0], line[1]] = (int(line[2]), 0)
    return found


def callback_slots(layout: int, rtx: bool) -> dict[tuple[str, str], int]:
    """Slot of each method that TensorRT calls, as slots.def has it."""
    lines = re.findall(
        r"^TRT_ET_CALLBACK\((\w+), (\w+), (\d+), (\d+), (\d+)\)", SLOTS.read_text(), re.M
    )
    column = 2 if rtx else 0 if layout == 10 else 1
    return {(kind, method): int(numbers[column]) for kind, method, *numbers in lines}


def _ask(module: str, folder: str | None, questions: list[Any]) -> tuple[str, list[str]]:
    """The version of the bindings, and their answers."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, module, json.dumps(questions)],
        env={**os.environ, **({"PYTHONPATH": folder} if folder else {})},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    version, answers = json.loads(done.stdout)
    return version, answers


def compare(module: str, folder: str | None = None) -> tuple[str, list[str], int]:
    """Ask the bindings.

    Args:
        module: Their name, e.g. ``tensorrt_rtx``.
        folder: Where they are, if not installed.

    Returns:
        Their version, what differs, and how many facts were compared.
    """
    version, _ = _ask(module, folder, [])
    major, minor = map(int, version.split(".")[:2])
    rtx = "rtx" in module
    layout = 11 if rtx else major
    table, callbacks = slots(layout, rtx), callback_slots(layout, rtx)
    if "lean" in module:
        table = {name: slot for name, slot in table.items() if name[0] not in BUILDING}
        callbacks = {name: slot for name, slot in callbacks.items() if name[0] not in BUILDING}
    count = table["CudaEngine", "getNbIOTensors"][0]
    questions, expected, names = [], [], []
    for (kind, method), (number, since) in table.items():
        if (kind, method) not in UNASKED and minor >= since:
            questions.append(["ask", f"I{kind}", QUESTIONS[kind][method], 7, count])
            expected.append(str(number))
            names.append(f"{kind}::{method}")
    for (kind, method), number in callbacks.items():
        python_method, arguments = CALLBACKS[kind, method]
        questions.append(["call", f"I{kind}", python_method, number, repr(arguments)])
        expected.append(python_method)
        names.append(f"{kind}::{method} in slot {number}")
    _, answers = _ask(module, folder, questions)
    differences = [
        f"{name}: {here} here, {there} there"
        for name, here, there in zip(names, expected, answers, strict=True)
        if here != there
    ]
    return version, differences, len(answers)


def _download(package: str, folder: str) -> str:
    """Put the bindings and the library of a package into a folder; the module's name."""
    name, _, version = package.partition("==")
    wanted = [f"{name}-{part}=={version}" for part in ("bindings", "libs")]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
    subprocess.run([*command, *wanted], check=True)
    return re.sub(r"-cu\d+$", "", name).replace("-", "_") + "_bindings"


def main() -> int:
    """Compare, and print a line for each version."""
    wrong = 0
    installed = [name for name in ("tensorrt_rtx", "tensorrt") if importlib.util.find_spec(name)]
    for package in sys.argv[1:] or installed:
        with tempfile.TemporaryDirectory() as folder:
            where = None if package in installed else folder
            module = package if where is None else _download(package, folder)
            version, differences, count = compare(module, where)
        print(f"{module} {version}: {count} facts compared, {len(differences)} wrong")  # noqa: T201
        print(*differences, sep="\n", end="\n" if differences else "")  # noqa: T201
        wrong += len(differences)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
