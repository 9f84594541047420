"""Inputs of a method that its caller gives in memory of a GPU."""

from __future__ import annotations

import torch
from executorch.exir.tensor import TensorSpec
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule

from trt_et.device_state import device_of, erase, is_copy
from trt_et.errors import OptionError

__all__ = ["label_inputs"]


def label_inputs(module: GraphModule, signature: ExportGraphSignature) -> None:
    """Let the caller give each input on the GPU that reads it, and drop ExecuTorch's copies.

    ``skip_h2d_for_method_inputs`` does so only where no buffer is mutated: it takes a buffer for an
    input, and refuses one that has a second user, such as the one that writes it back.

    Args:
        module: The program that is planned.
        signature: Its signature.

    Raises:
        OptionError: Several devices read an input.
    """
    names = set(signature.user_inputs)
    for node in [node for node in module.graph.nodes if node.op == "placeholder"]:
        if node.name not in names:
            continue
        # Who reads the size alone does not read the memory.
        readers = [user for user in node.users if user.target is not torch.ops.aten.sym_size.int]
        uploads = [user for user in readers if is_copy(user, "_h2d_copy")]
        if not uploads:
            continue
        devices = {device_of(upload) for upload in uploads}
        if len(uploads) < len(readers) or len(devices) > 1:
            found = [f"cuda:{index}" for _, index in sorted(devices)]
            raise OptionError(
                f"inputs_on_device=True, but input {node.name} is read on several devices: "
                + ", ".join([*found, *(["the CPU"] if len(uploads) < len(readers) else [])])
            )
        spec: TensorSpec = node.meta["spec"]
        spec.device, spec.device_index = devices.pop()
        for upload in uploads:
            upload.replace_all_uses_with(node)
            erase(upload)
    module.graph.lint()
    module.recompile()
