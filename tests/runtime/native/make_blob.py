"""Writes the blob that the native tests run: a reference engine, float32 [2, 8] to [2, 4]."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3])]


def main(target: Path) -> None:
    import torch
    from native_blobs import HEADER
    from native_programs import Mlp, export

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        program = export(Path(folder), "mlp", Mlp(), (torch.randn(2, 8),)).path.read_bytes()
    at = program.index(b"TRRF")
    _, _, _, engine_at, engine_size, *_ = HEADER.unpack_from(program, at)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(program[at : at + engine_at + engine_size])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
