"""The compile spec ``partition``: the names that an engine's partition had in the program.

An engine names neither its operators nor the model's tensors: equal partitions share one engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

PARTITION_KEY: Final = "partition"


@dataclass(frozen=True)
class PartitionNames:
    """The origin of a partition.

    Attributes:
        name: Its name, such as ``tensorrt_0``.
        inputs: The nodes of the program that its inputs come from, in order; an input of the model
            has the model's name for it.
        outputs: The nodes that make its outputs, in order.
        operators: The number of calls of each operator.
    """

    name: str = ""
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    operators: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the value of the compile spec."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def decode_names(value: bytes) -> PartitionNames:
    """Read the value of the compile spec; no names if it is damaged."""
    try:
        document = json.loads(value)
        return PartitionNames(
            str(document["name"]),
            tuple(map(str, document["inputs"])),
            tuple(map(str, document["outputs"])),
            {str(name): int(count) for name, count in document["operators"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return PartitionNames()
