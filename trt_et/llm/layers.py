"""Puts a language model's layers on several GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from trt_et.errors import OptionError
from trt_et.graph.marks import Mark
from trt_et.graph.modules import module_of
from trt_et.partitioner import Partition
from trt_et.target_device import parse_device

_LAYER: Final = re.compile(r"\.(\d+)(?:\.|$)")
_CUT: Final = Mark("last_of_engine")
_WRITES_CACHE: Final = frozenset({"aten.index_copy_.default", "aten.index_copy.default"})


class LayerDevices:
    """The GPU of each layer of an exported language model.

    A new engine begins at each layer on another GPU than the layer before it. The first engine
    also runs the operators before the first layer, and the last engine those after the last layer.

    Args:
        program: The program of ``torch.export``, whose nodes name their modules. The nodes between
            two engines are marked.
        device: Returns the GPU of a layer by its number.
        name: The model's name, for messages.

    Raises:
        OptionError: The model has no numbered layers, the function returns no GPU, or a layer uses
            the KV cache of a layer on another GPU.
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
            _CUT.write(node, True)

    @staticmethod
    def is_cut(node: Node) -> bool:
        """Check that a node makes a value that one engine passes to the next; the CPU runs it."""
        return bool(_CUT.of(node))

    def device_of(self, partition: Partition) -> int:
        """Return the GPU of a partition of the program."""
        for module in partition.modules:
            layer = _layer(module)
            if layer in self._devices:
                return self._devices[layer]
        ends = list(self._devices.values())
        return ends[0 if partition.index == 0 else -1]


def _layer(module: str) -> int | None:
    """Return the first number in the path of a module, such as 3 of ``model.layers.3.mlp``."""
    match = _LAYER.search(module)
    return int(match[1]) if match else None


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
