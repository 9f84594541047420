"""A graph of boxes and arrows as one HTML page that needs no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources

from trt_et.inspection.tables import Table

#: The group of operators that stay on the CPU.
CPU = "operator on the CPU"
#: The group of inputs and outputs of the whole graph.
ENDS = "input or output"

_MOST_LINES = 6


@dataclass(frozen=True)
class Bar:
    """A row in an open box: texts, and a bar as wide as its bytes.

    Attributes:
        text: Its first text, such as the operators of a kernel.
        note: Its second text, such as the nodes of a kernel.
        tip: The text under the pointer.
        parts: Bytes, with the colours and names of ``Box.parts``; None: not known.
    """

    text: str
    note: str
    tip: str
    parts: tuple[int | None, ...]


@dataclass(frozen=True)
class Box:
    """A box with a title and lines below.

    Each group has a colour. The page shows the facts beside the graph when the box is chosen. A box
    with bars then opens: the bars take the place of the lines.

    Attributes:
        bars: Its rows when it is open.
        parts: The names of the parts of a bar.
        summary: One line above the bars.
    """

    group: str
    title: str
    lines: tuple[str, ...] = ()
    facts: tuple[Table, ...] = ()
    bars: tuple[Bar, ...] = ()
    parts: tuple[str, ...] = ()
    summary: str = ""


@dataclass
class Picture:
    """A graph.

    Attributes:
        facts: The page shows them beside the graph at first.
        boxes: Its boxes; every arrow ends in a later one.
        arrows: By the indices of two boxes: the text and the bytes of each tensor between them.
    """

    facts: tuple[Table, ...] = ()
    boxes: list[Box] = field(default_factory=list)
    arrows: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)

    def add_arrow(self, start: int, end: int, text: str, nbytes: int) -> None:
        """Add a tensor to the arrow between two boxes."""
        self.arrows.setdefault((start, end), {})[text] = nbytes


def box_lines(operators: Mapping[str, int]) -> tuple[str, ...]:
    """Return lines for a box: the most frequent operators, and how many others there are."""
    common = sorted(operators.items(), key=lambda item: -item[1])
    shown = common if len(common) <= _MOST_LINES else common[: _MOST_LINES - 1]
    lines = [f"{count} x {_short(name)}" if count > 1 else _short(name) for name, count in shown]
    rest = sum(count for _, count in common[len(shown) :])
    return (*lines, f"and {rest} more") if rest else tuple(lines)


def _short(operator: str) -> str:
    name = operator.partition("::")[2] or operator
    return name.removesuffix(".out").removesuffix(".default").lstrip("_")


def html_page(pictures: Mapping[str, Picture], title: str) -> str:
    """Return the page of the pictures, by name."""
    graphs = {
        name: {
            **asdict(picture),
            "arrows": [
                {"ends": ends, "tensors": list(tensors.items())}
                for ends, tensors in picture.arrows.items()
            ],
        }
        for name, picture in pictures.items()
    }
    data = json.dumps({"title": title, "graphs": graphs})
    template = (resources.files("trt_et.inspection") / "page.html").read_text(encoding="utf-8")
    # Within a script, "</" would end it.
    return template.replace("{{data}}", data.replace("</", "<\\/"))
