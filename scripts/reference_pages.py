"""How the reference pages differ from the docstrings; mkdocs.yml names this file."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ReferencePages(griffe.Extension):
    """Adds links to pages, leaves out the parameter that only catches unknown names."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Make ``(docs/guides/state.md)`` in a docstring a link."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"\(docs/guides/([\w-]+)\.md\)", r"([guide](../guides/\1.md))", obj.docstring.value
            )

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Leave out ``**unknown: NoReturn``."""
        func.parameters = griffe.Parameters(
            *(each for each in func.parameters if str(each.annotation) != "NoReturn")
        )
