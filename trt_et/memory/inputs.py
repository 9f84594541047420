"""Plans the inputs of a method on the GPU that reads them."""

from __future__ import annotations

import torch
from executorch.exir.tensor import TensorSpec
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule

from trt_et.errors import OptionError
from trt_et.memory.state import device_of, erase, is_copy

__all__ = ["label_inputs"]


def label_inputs(module: GraphModule, signature: ExportGraphSignature) -> None:
    """Let the caller give each input on the GPU that reads it, and drop ExecuTorch's copies.

    ``skip_h2d_for_method_inputs`` cannot: it takes a mutated buffer for an input, and refuses an
    input with a second user, such as the one that writes a buffer back.

    Args:
        module: The program to plan.
        signature: Its signature.

    Raises:
        OptionError: Several devices read an input.
    """
    names = set(signature.user_inputs)
    for node in module.graph.find_nodes(op="placeholder"):
        # A user that reads only the size does not read the memory.
        readers = [user for user in node.users if user.target is not torch.ops.aten.sym_size.int]
        uploads = [user for user in readers if is_copy(user, "_h2d_copy")]
        if node.name not in names or not uploads:
            continue
        devices = {device_of(upload) for upload in uploads}
        if len(uploads) < len(readers) or len(devices) > 1:
            places = [f"cuda:{index}" for _, index in sorted(devices)]
            places += ["the CPU"] if len(uploads) < len(readers) else []
            raise OptionError(
                f"inputs_on_device=True, but input {node.name} is read on several devices: "
                + ", ".join(places)
            )
        spec: TensorSpec = node.meta["spec"]
        spec.device, spec.device_index = devices.pop()
        for upload in uploads:
            upload.replace_all_uses_with(node)
            erase(upload)
    module.graph.lint()
    module.recompile()
