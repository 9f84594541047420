"""Wraps an engine that was built elsewhere, by ``trtexec`` for example, in a module to export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from trt_et.blob.model import Binding, EngineInfo
from trt_et.errors import OptionError
from trt_et.ops.prebuilt_engine import PREBUILT_ENGINE, info_text

# An engine begins with a tag and the number of its layout, 0; its version follows.
_BUILDERS: Final = {b"ftrt": "tensorrt", b"vtrt": "tensorrt_rtx"}
_VERSION: Final = slice(24, 28)


class EngineFile(torch.nn.Module):
    """A serialized TensorRT engine of static shapes, with the sizes of its outputs.

    Export it alone, or as a part of a larger module. The partitioner puts the engine into the
    program as it is; no TensorRT is needed, and no GPU::

        engine = EngineFile(
            "resnet50.engine",
            inputs=["input"],
            outputs={"logits": ((1, 1000), torch.float32)},
            target_platform="linux_aarch64",
            compute_capabilities=["8.7"],
        )
        exported = torch.export.export(engine, (torch.zeros(1, 3, 224, 224),))
        program = to_edge_transform_and_lower(exported, partitioner=[TensorRTPartitioner()])

    Calling it outside of ``torch.export`` fails: the engine runs in the exported program only.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        inputs: Sequence[str],
        outputs: Mapping[str, tuple[Sequence[int], torch.dtype]],
        device: int = 0,
        target_platform: str = "",
        compute_capabilities: Sequence[str] = (),
        hardware_compatible: bool = False,
    ) -> None:
        """Read an engine.

        Args:
            path: The file.
            inputs: The names of the engine's inputs, in the order in which the module takes them.
            outputs: Shape and dtype of each output, in the order in which the module returns them.
                A single output is returned as a tensor, several as a tuple.
            device: Index of the GPU that it is for.
            target_platform: ``linux_x86_64`` or ``linux_aarch64``. Other platforms refuse the
                engine when it is loaded. Empty: not checked.
            compute_capabilities: Such as ``["8.7"]``, checked at loading. Empty: not checked.
            hardware_compatible: Whether it was built for all GPUs from Ampere on.

        Raises:
            OptionError: The file is no engine.
            BlobError: ``device`` is no index of a GPU, a size is negative, two tensors have one
                name, or engines do not support a dtype.
        """
        super().__init__()
        engine = Path(path).read_bytes()
        builder = _BUILDERS.get(engine[:4])
        if builder is None or len(engine) < _VERSION.stop or any(engine[4:8]):
            raise OptionError(f"{path} is no TensorRT engine: it does not begin as one")
        bindings = [Binding(name, "", (), is_input=True) for name in inputs]
        bindings += [
            Binding(name, str(dtype).removeprefix("torch."), tuple(shape), is_input=False)
            for name, (shape, dtype) in outputs.items()
        ]
        self._info = info_text(
            EngineInfo(
                tuple(bindings),
                device_id=device,
                builder=builder,
                library_version=".".join(map(str, engine[_VERSION])),
                compute_capabilities=tuple(compute_capabilities),
                hardware_compatible=hardware_compatible,
                target_platform=target_platform,
            )
        )
        self.register_buffer(
            "engine", torch.frombuffer(bytearray(engine), dtype=torch.uint8), persistent=False
        )
        self.engine: torch.Tensor

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Run the engine; for ``torch.export`` only."""
        results: list[torch.Tensor] = PREBUILT_ENGINE(list(inputs), self.engine, self._info)
        return results[0] if len(results) == 1 else tuple(results)
