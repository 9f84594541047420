"""Torch-TensorRT's interpreter, made exact about a partition's outputs.

Imported only where Torch-TensorRT is loaded already (see ``converters.py``).
"""

from __future__ import annotations

from typing import Any

from torch_tensorrt.dynamo.conversion._TRTInterpreter import TRTInterpreter
from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor

__all__ = ["PartitionInterpreter"]


class PartitionInterpreter(TRTInterpreter):
    """Gives every output of the partition a binding of its own.

    The base class marks a tensor once however often it is returned, and TensorRT cannot return an
    input as it is; a delegate's outputs are positional, so both would shift them.
    """

    def output(self, target: str, args: Any, kwargs: Any) -> list[Any]:  # noqa: ANN401
        """Mark the outputs, each through an identity layer where it must be a tensor of its own."""
        network = self.ctx.net
        taken = {network.get_input(i).name for i in range(network.num_inputs)}
        results = []
        for index, result in enumerate(args[0]):
            tensor = get_trt_tensor(self.ctx, result, f"constant_output{index}")
            if tensor.name in taken:
                layer = network.add_identity(tensor)
                layer.name = f"identity_output{index}"
                tensor = layer.get_output(0)
                tensor.name = f"{layer.name}_tensor"
            taken.add(tensor.name)
            results.append(tensor)
        marked: list[Any] = super().output(target, (tuple(results),), kwargs)
        return marked
