"""The environment that tests give to the processes that they start."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment without our variables, with the source tree importable."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRT_ET_")}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return kept | {key: value for key, value in changes.items() if value is not None}
