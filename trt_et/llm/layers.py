"""A language model's layers on several GPUs: where to cut the program, and each engine's GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.errors import OptionError
from trt_et.graph.modules import module_of
from trt_et.partitioner import Partition
from trt_et.target_device import parse_device

__all__ = ["LayerDevices"]

_LAYER: Final = re.compile(r"\.(\d+)(?:\.|$)")
_CUT: Final = "trt_et_last_of_engine"
_WRITES_CACHE: Final = frozenset({"aten.index_copy_.default", "aten.index_copy.default"})


class LayerDevices:
    """The GPU of each layer of an exported language model.

    A layer's GPU differs from that of the layer before it: a new engine begins there. What comes
    before the first layer goes with it, and what comes after the last one with that.

    Args:
        program: As ``torch.export`` returns it, with the modules that its nodes come from; the
            nodes at which it is cut are marked.
        device: From a layer's number to its GPU.
        name: The model's, for messages.

    Raises:
        OptionError: The model has no numbered layers, what the function returns is no GPU, or a
            layer uses the KV cache of a layer on another GPU.
    """

    def __init__(
        self,
        program: ExportedProgram,
        device: Callable[[int], str | int | torch.device],
        name: str,
    ) -> None:
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        layers = sorted({layer for node in nodes if (layer := _layer(module_of(node))) is not None})
        if not layers:
            raise OptionError(
                f"device is a function, but {name} has no numbered layers; expected one GPU, such "
                "as device='cuda:0'"
            )
        self._devices = {layer: parse_device(device(layer)) for layer in layers}
        engine, engines = 0, {layers[0]: 0}
        for before, layer in pairwise(layers):
            engine += self._devices[before] != self._devices[layer]
            engines[layer] = engine
        for node in _last_nodes(nodes, engines):
            # torch copies this to whatever the node is decomposed to.
            node.meta["custom"] = {**node.meta.get("custom", {}), _CUT: True}

    @staticmethod
    def is_cut(node: Node) -> bool:
        """Whether a node makes what one engine gives to the next; the CPU runs it."""
        return _CUT in node.meta.get("custom", {})

    def device_of(self, partition: Partition) -> int:
        """The GPU of a partition of the program."""
        for module in partition.modules:
            layer = _layer(module)
            if layer in self._devices:
                return self._devices[layer]
        ends = list(self._devices.values())
        return ends[0 if partition.index == 0 else -1]


def _layer(module: str) -> int | None:
    """The first number in the path of a module, such as 3 of ``model.layers.3.mlp``."""
    found = _LAYER.search(module)
    return int(found[1]) if found else None


def _last_nodes(nodes: Iterable[Node], engines: dict[int, int]) -> Iterable[Node]:
    for node in nodes:
        layer = _layer(module_of(node))
        if layer is None:
            continue
        users = [user for user in node.users if user.op == "call_function"]
        others = [other for user in users if (other := _layer(module_of(user))) is not None]
        later = [other for other in others if engines[other] > engines[layer]]
        if not later:
            continue
        if str(node.target) in _WRITES_CACHE:
            raise OptionError(
                f"device puts layer {min(later)} on another GPU than layer {layer}, whose KV cache "
                "it uses; expected one GPU for both"
            )
        yield node
