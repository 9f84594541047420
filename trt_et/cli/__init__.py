"""The command ``trt-et``, one file per sub-command.

A sub-command imports what it needs when it runs: ``trt-et --help`` imports neither torch nor
ExecuTorch. Exit status: 0, done; 1, what was asked for failed, or a file is damaged; 2, wrong
usage.
"""

from __future__ import annotations

from trt_et.cli.commands import app, main

__all__ = ["app", "main"]
