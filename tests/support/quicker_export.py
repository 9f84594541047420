"""Torch's exports, quicker: a third of the time of small models goes into what is left out here."""

from __future__ import annotations

import typing

import torch._export  # Keeps the function that is replaced.
from torch._export import utils
from torch.export import decomp_utils, exported_program


def make_exports_quicker() -> None:
    """Let torch look up all composite operators once a decomposition, not once a namespace of them.

    Torch also evaluates an annotation at each registration of a kernel: ``typing`` remembers it.
    """
    look_up, collect = utils._materialize_cpp_cia_ops, utils._collect_all_valid_cia_ops

    def collect_quickly() -> typing.Any:
        look_up()
        return collect()

    look_up()  # For aten, whose operators torch collects apart, and once.
    utils._materialize_cpp_cia_ops = lambda: None
    for module in (decomp_utils, exported_program):
        module._collect_all_valid_cia_ops = collect_quickly  # type: ignore[attr-defined]
    torch._ops.Callable = typing.Callable  # type: ignore[attr-defined]
