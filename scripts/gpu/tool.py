"""Starts ``engine_costs``, the program of scripts/gpu/native."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

__all__ = ["run_tool"]


def run_tool(command: Sequence[str], **changes: str) -> subprocess.CompletedProcess[str]:
    """Run it with changes to the environment, for at most 200 s.

    It has the plugin's sources, so it finds no provider beside itself: the installed plugin's are
    taken, if ``TRT_ET_PROVIDER_PATH`` names no other folder.
    """
    variables = {**os.environ, **changes}
    if "TRT_ET_PROVIDER_PATH" not in variables:
        import trt_et.runtime

        variables["TRT_ET_PROVIDER_PATH"] = str(trt_et.runtime.plugin_path().parent)
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)
