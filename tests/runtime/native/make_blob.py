"""Writes the blobs that the native tests run, of reference engines.

The named file: float32 [2, 8] to [2, 4]. Beside it, with "_program" behind the name, its program,
and with "_network" its ONNX network.
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

    torch.manual_seed(0)
    target.parent.mkdir(parents=True, exist_ok=True)
    inputs = (torch.randn(2, 8),)
    mlp = Mlp()
    for suffix, builder in (("_network", "onnx"), ("", "reference")):
        with tempfile.TemporaryDirectory() as folder:
            exported = export(Path(folder), "program", mlp, inputs, builder=builder)
            program = exported.path.read_bytes()
        at = program.index(b"TR01" if builder == "onnx" else b"TRRF")
        _, _, _, engine_at, engine_size, *_ = HEADER.unpack_from(program, at)
        blob = program[at : at + engine_at + engine_size]
        target.with_name(target.name + suffix).write_bytes(blob)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
