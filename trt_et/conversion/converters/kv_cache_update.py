"""KV cache updates as TensorRT's layer, which writes in place.

Import it only after Torch-TensorRT (see ``registry.py``), which has no converter that adds this
layer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tensorrt as trt
from torch.fx import Node
from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor

from trt_et.blob.model import Alias
from trt_et.errors import BuilderError

__all__ = ["add_cache_update", "check_cache_updates", "has_cache_update_layer"]


def has_cache_update_layer() -> bool:
    """Check whether this TensorRT has the layer: 10.15 or later, and TensorRT-RTX 1.5."""
    return hasattr(trt.INetworkDefinition, "add_kv_cache_update")


def add_cache_update(ctx: Any, node: Node, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """Add the layer of one ``write_rows`` (``rewrites/kv_cache_update.py``).

    Args:
        ctx: Torch-TensorRT's ``ConversionContext``.
        node: The call.
        args: The cache, an input of the network; the rows; the first position in each batch, int32.
        kwargs: Empty.

    Returns:
        TensorRT's tensor, which has the cache's memory.

    Raises:
        BuilderError: TensorRT refuses the layer.
    """
    cache, rows, starts = (
        get_trt_tensor(ctx, argument, f"{node.name}_{what}")
        for what, argument in zip(("cache", "rows", "starts"), args, strict=True)
    )
    layer = ctx.net.add_kv_cache_update(cache, rows, starts, trt.KVCacheMode.LINEAR)
    if layer is None:
        raise BuilderError(
            f"TensorRT {trt.__version__} refuses the update of a KV cache at {node.name}"
        )
    layer.name = f"cache_update_{node.name}"
    return layer.get_output(0)


def check_cache_updates(network: Any, aliases: Collection[Alias]) -> None:  # noqa: ANN401
    """Check that a network writes exactly the declared inputs in place.

    A release of Torch-TensorRT that adds such layers itself does not know whether the program needs
    the old value.

    Args:
        network: ``trt.INetworkDefinition``.
        aliases: The declared updates.

    Raises:
        BuilderError: The network writes other inputs in place.
    """
    if not has_cache_update_layer():
        return
    layers = (network.get_layer(index) for index in range(network.num_layers))
    found = {
        (layer.get_output(0).name, layer.get_input(0).name)
        for layer in layers
        if layer.type == trt.LayerType.KV_CACHE_UPDATE
    }
    declared = {(alias.output, alias.input) for alias in aliases}
    if found != declared:
        raise BuilderError(
            f"the network updates {sorted(found)} in place; expected {sorted(declared)}. Install "
            "a version of Torch-TensorRT that trt-et supports"
        )
