"""The build of an ONNX network's engine: by the native provider, and by TensorRT-RTX's bindings."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def network_build(size: float, rounds: int) -> dict[str, Any]:
    """Build one engine both ways, in turn, and load a kept one; medians after one small round.

    Returns:
        Seconds of both builds, of the load from the engine folder, and of reading that file; bytes
        of the weights and of both engines.
    """
    # The provider library without a driver, which the plugin would ask for.
    from tests.support.provider_table import Provider
    from trt_et.runtime import plugin_path

    provider = Provider(plugin_path().with_name("libtrt_et_tensorrt_rtx.so"))
    found: dict[str, list[float]] = {}
    engines: dict[str, bytes] = {}

    def timed(name: str, build: Callable[[], bytes]) -> None:
        begin = time.perf_counter()
        engines[name] = build()
        found.setdefault(name, []).append(time.perf_counter() - begin)

    small, payload = _payload(1), _payload(size)
    for turn, built in enumerate([small] + [payload] * rounds):
        with tempfile.TemporaryDirectory() as folder:
            timed("native", partial(_build_natively, provider, built, "off"))
            timed("bindings", partial(_build_by_bindings, built))
            timed("native_kept", partial(_build_natively, provider, built, folder))
            timed("kept", partial(_build_natively, provider, built, folder))
            file = max(Path(folder).rglob("*"), key=lambda path: path.stat().st_size)
            timed("read", file.read_bytes)
        if turn == 0:
            found.clear()
    medians = {name: round(statistics.median(seconds), 4) for name, seconds in found.items()}
    return medians | {
        "weights_bytes": sum(map(len, payload.weights.values())),
        "native_engine_bytes": len(engines["native"]),
        "bindings_engine_bytes": len(engines["bindings"]),
    }


def _payload(size: float) -> Any:
    from benchmarks.aot.models import MODELS
    from tests.support.lowering import request
    from tests.support.onnx.payloads import payload_of

    module, inputs = MODELS["vit"](size)
    wanted = request(module, *inputs)
    return payload_of(wanted.program, wanted)


def _build_natively(provider: Any, payload: Any, folder: str) -> bytes:
    from tests.support.provider_table import Tensor

    tensors = [Tensor(b.name, b.shape, b.is_input, b.dtype) for b in payload.info.bindings]
    network = dict(payload.info.network)
    engine: bytes = provider.build(payload.model, tensors, payload.weights, network, folder)
    return engine


def _build_by_bindings(payload: Any) -> bytes:
    import numpy as np
    import onnx
    import tensorrt_rtx as trt

    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    ok = parser.load_model_proto(payload.model)
    for tensor in onnx.ModelProto.FromString(payload.model).graph.initializer:
        places = {entry.key: entry.value for entry in tensor.external_data}
        if places:
            data = np.frombuffer(payload.weights[places["location"]], np.uint8)
            ok = ok and parser.load_initializer(tensor.name, data.ctypes.data, data.nbytes)
    if not (ok and parser.parse_model_proto()):
        raise SystemExit(f"the parser refuses the network: {parser.get_error(0)}")
    config = builder.create_builder_config()
    config.add_optimization_profile(builder.create_optimization_profile())
    return bytes(builder.build_serialized_network(network, config))
