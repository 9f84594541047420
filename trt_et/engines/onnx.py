"""The ONNX builder: networks that the runtime builds engines of, on the GPU that it finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import torch
from torch.export import ExportedProgram

from trt_et.blob.codec import decode_blob, encode_blob
from trt_et.blob.model import EngineInfo
from trt_et.conversion.installed import onnx_version
from trt_et.engine_program.program import EngineProgram, unlift
from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.engines.fingerprint import fingerprint_of
from trt_et.errors import BuilderError, ConversionError, OptionError
from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported
from trt_et.graph.tracing import TRACING
from trt_et.options import BuildOptions

if TYPE_CHECKING:
    from trt_et.conversion.onnx.model import OnnxModel

# The weights of partitions that this process has converted, until ``named_data`` takes them.
_CONVERTED: Final[WeakKeyDictionary[ExportedProgram, Mapping[str, torch.Tensor]]] = (
    WeakKeyDictionary()
)


class OnnxBuilder(EngineBuilder):
    """Makes an ONNX model of each partition; TensorRT builds its engine when it is first loaded."""

    name = "onnx"

    def fingerprint(self) -> str:
        """See ``trt_et.engines.EngineBuilder``."""
        return fingerprint_of("onnx", tensorrt=False)

    def check_options(self, options: BuildOptions) -> None:
        """See ``trt_et.engines.EngineBuilder``."""
        for name in (
            "compute_capabilities",
            "refittable",
            "hardware_compatible",
            "torch_tensorrt_settings",
        ):
            if getattr(options, name):
                raise OptionError(
                    f"builder='onnx' takes no {name}: the engine is built for the GPU that loads "
                    "the program; leave it out"
                )
        if options.dla_core is not None or options.dla_gpu_fallback:
            raise OptionError("builder='onnx' takes no dla_core; leave it out")

    def make_support_check(self, options: BuildOptions) -> SupportCheck:
        """See ``trt_et.engines.EngineBuilder``."""
        return onnx_support_check()

    def build(self, request: BuildRequest) -> bytes:
        """See ``trt_et.engines.EngineBuilder.build``."""
        program = request.program
        model = make_onnx_model(request)
        _CONVERTED[program.exported] = model.weights
        info = EngineInfo(
            bindings=program.bindings,
            device_id=request.device_id,
            builder=self.name,
            library_version=f"onnx {onnx_version()} opset {model.opset}",
            hardware_compatible=True,
            precision=request.options.precision or "",
            network=network_options(request, sorted(model.weights)),
        )
        return encode_blob(model.to_bytes(), info)

    def named_data(self, program: EngineProgram, blob: bytes) -> Mapping[str, torch.Tensor]:
        """See ``trt_et.engines.EngineBuilder``."""
        from trt_et.conversion.onnx.model import references

        if (converted := _CONVERTED.pop(program.exported, None)) is not None:
            return dict(converted)
        constants = program.constants
        engine = decode_blob(blob, verify=False).engine
        keys = references(bytes(engine))
        if not constants.keys() >= keys.keys():  # The conversion made some of them.
            return dict(_convert(program).weights)
        return {key: constants[name].detach() for name, key in keys.items()}


def onnx_support_check(library: str | None = None) -> SupportCheck:
    """Return the check by the conversion to ONNX, whose packages it imports when it is called."""

    def check(fragment: Fragment) -> Unsupported | None:
        from trt_et.conversion.trial import try_as_onnx_model

        return try_as_onnx_model(library)(fragment)

    return check


def make_onnx_model(request: BuildRequest, library: str | None = None) -> OnnxModel:
    """Convert a request's partition to an ONNX model.

    Args:
        request: The partition.
        library: The only engine library that reads the model; None: all of them may.

    Raises:
        BuilderError: It has no ONNX model.
    """
    try:
        return _convert(request.program, library)
    except ConversionError as error:
        raise BuilderError(
            f"partition {request.partition} has no ONNX model"
            + (f" because of node {error.node}" if error.node else "")
            + f": {error.reason}. Leave the node to the CPU (excluded_ops=...)"
        ) from error


def _convert(program: EngineProgram, library: str | None = None) -> OnnxModel:
    from trt_et.conversion.onnx.model import convert_module, weight_key

    with TRACING:
        return convert_module(
            unlift(program.exported),
            program.inputs,
            program.outputs,
            lambda _, tensor: weight_key(tensor),
            program.aliased_outputs,
            library,
        )


def network_options(request: BuildRequest, weights: list[str]) -> dict[str, Any]:
    """Return how to build the engine of a network (``EngineInfo.network``)."""
    options = request.options
    chosen = {
        "workspace_size": options.workspace_size,
        "optimization_level": options.optimization_level,
        "weight_streaming": options.weight_streaming or None,
    }
    profiles = [
        {name: [list(shape) for shape in shapes] for name, shapes in profile.items()}
        for profile in request.program.profiles
    ]
    return {
        "weights": weights,
        "profiles": profiles,
        "strongly_typed": True,
        **{name: value for name, value in chosen.items() if value is not None},
    }
