"""Writes the blobs that the native tests run, of reference engines.

The named file: float32 [2, 8] to [2, 4]. Beside it, with "_state" behind the name: an engine of a
buffer and of what is added to it, to the buffer before and after; and with "_program" the program
of the first; and with "_network" the ONNX network of the first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))


def main(target: Path) -> None:
    import torch

    from tests.support.native_blobs import HEADER
    from tests.support.native_programs import Mlp, export

    class State(torch.nn.Module):
        def forward(
            self, cache: torch.Tensor, x: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            before = cache.view(2, 8)
            return (before + x).view(16), before

    torch.manual_seed(0)
    target.parent.mkdir(parents=True, exist_ok=True)
    x = torch.randn(2, 8)
    mlp = Mlp()
    for suffix, module, inputs, builder in (
        ("_state", State(), (torch.zeros(16), x), "reference"),
        ("_network", mlp, (x,), "onnx"),
        ("", mlp, (x,), "reference"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            program = export(Path(folder), "program", module, inputs, builder=builder)
            program = program.path.read_bytes()
        at = program.index(b"TR01" if builder == "onnx" else b"TRRF")
        _, _, _, engine_at, engine_size, *_ = HEADER.unpack_from(program, at)
        blob = program[at : at + engine_at + engine_size]
        target.with_name(target.name + suffix).write_bytes(blob)
    target.with_name(target.name + "_program").write_bytes(program)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
