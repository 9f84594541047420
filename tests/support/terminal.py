"""A terminal in place of standard error."""

from __future__ import annotations

import io
import sys

import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called in the test itself: between its set-up and it, pytest puts its own stderr back."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "50")
    return terminal
