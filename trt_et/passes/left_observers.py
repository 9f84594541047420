"""Refuses models that were exported between ``prepare_pt2e`` and ``convert_pt2e``."""

from __future__ import annotations

import re
from typing import Final

from torch.export import ExportedProgram

from trt_et.errors import PartitionError

__all__ = ["check_converted"]

# The name that prepare_pt2e gives to the modules that it adds.
_OBSERVER: Final = re.compile(r"(?:.*\.)?activation_post_process_\d+(?=\.)")


def check_converted(program: ExportedProgram) -> None:
    """Check that a program, as ``torch.export`` returns it, has no observers.

    Raises:
        PartitionError: It has some.
    """
    buffers = program.graph_signature.inputs_to_buffers.values()
    found = sorted({match[0] for buffer in buffers if (match := _OBSERVER.match(buffer))})
    if found:
        raise PartitionError(
            f"the program still has {len(found)} observer(s) of prepare_pt2e, "
            f"such as {found[0]}; expected none. Calibrate the prepared model, then export "
            "convert_pt2e(prepared)"
        )
