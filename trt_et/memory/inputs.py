"""Plans the inputs of a method on the GPU that reads them."""

from __future__ import annotations

from collections.abc import Collection

import torch
from executorch.exir.tensor import TensorSpec
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule

from trt_et.errors import OptionError
from trt_et.memory.state import device_of, erase, is_copy

__all__ = ["label_inputs"]


def label_inputs(
    module: GraphModule, signature: ExportGraphSignature, chosen: Collection[str] | None = None
) -> None:
    """Let the caller give inputs on the GPU that reads them, and drop ExecuTorch's copies.

    ``skip_h2d_for_method_inputs`` cannot: it takes a mutated buffer for an input, and refuses an
    input with a second user, such as the one that writes a buffer back.

    Args:
        module: The program to plan.
        signature: Its signature.
        chosen: The names of these inputs. None: all.

    Raises:
        OptionError: Several devices read an input, or the method has no input of a chosen name.
    """
    names = set(signature.user_inputs)
    if chosen is not None:
        if unknown := set(chosen) - names:
            raise OptionError(
                f"inputs_on_device names {sorted(unknown)[0]!r}, but the inputs of the method are "
                + ", ".join(map(str, signature.user_inputs))
            )
        names = set(chosen)
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
                f"inputs_on_device, but input {node.name} is read on several devices: "
                + ", ".join(places)
            )
        spec: TensorSpec = node.meta["spec"]
        spec.device, spec.device_index = devices.pop()
        for upload in uploads:
            upload.replace_all_uses_with(node)
            erase(upload)
    module.graph.lint()
    module.recompile()
