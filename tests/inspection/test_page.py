"""A graph as one page."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from trt_et.inspection.page import Bar, Box, Picture, box_lines, html_page

CHROMIUM = shutil.which("chromium") or ""


def test_the_page_needs_nothing_else_and_its_data_cannot_end_the_script():
    picture = Picture(boxes=[Box("engine", "</script><img src=x>")])
    page = html_page({"forward": picture}, "</script><img src=x>")
    assert page.count("</script>") == 1
    assert not re.search(r"""(src|href)\s*=\s*["']|@import|url\("https?:""", page)
    assert "{{data}}" not in page


def test_a_box_names_the_most_frequent_operators():
    counts = {f"aten::op{n}.default": n for n in range(1, 10)}
    assert box_lines(counts) == (*(f"{n} x op{n}" for n in range(9, 4, -1)), "and 10 more")
    assert box_lines({"aten::_softmax.out": 1, "aten::add.Tensor": 2}) == (
        "2 x add.Tensor",
        "softmax",
    )


needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium: apt-get install chromium")


def shown(page: str, folder: Path, script: str = "") -> str:
    """Return what a browser makes of a page, after a script."""
    (folder / "page.html").write_text(page.replace("</body>", f"<script>{script}</script></body>"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--dump-dom", f"file://{folder}/page.html"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@needs_chromium
@pytest.mark.parametrize("engines", [2, 6])
def test_boxes_labels_and_long_arrows_keep_apart(engines, tmp_path):
    boxes = [Box("input or output", "x"), Box("input or output", "mask")]
    boxes += [Box("engine", f"engine {n}", ("linear",) * (n + 1)) for n in range(engines)]
    picture = Picture(boxes=boxes)
    for index in range(2, len(boxes)):
        for source in {0, 1, index - 1}:
            picture.add_arrow(source, index, "x: float32 [2, 32], 256 B", 256)
    dom = shown(html_page({"forward": picture}, "model"), tmp_path)
    rects = [
        re.findall(r' (?:x|y|width|height)="([\d.]+)"', tag) for tag in re.findall("<rect.*?>", dom)
    ]
    areas = [tuple(map(float, rect)) for rect in rects]
    assert len(areas) == len(picture.boxes) + len(picture.arrows)
    for (x, y, width, height), (x2, y2, width2, height2) in itertools.combinations(areas, 2):
        apart = max(x2 - x - width, x - x2 - width2, y2 - y - height, y - y2 - height2)
        assert apart > 0
    # Where an arrow runs straight down, it is between boxes or at its ends.
    for path in re.findall(r'<path class="arrow".*? d="(.*?)"', dom):
        x, y = 0.0, 0.0
        for letter, text in re.findall(r"([MVC])([^MVC]*)", path):
            numbers = [float(number) for number in text.split()]
            if letter == "V":
                for left, top, width, height in areas[: len(boxes)]:
                    beside = not left < x < left + width
                    assert beside or max(y, numbers[0]) <= top or min(y, numbers[0]) >= top + height
                y = numbers[0]
            else:
                x, y = numbers[-2:]


@needs_chromium
def test_a_box_opens_into_bars_as_wide_as_their_bytes_and_closes(tmp_path):
    long = ", ".join(["reshape"] * 40)
    bars = (
        Bar("matmul, add", "linear_0", "runtime_fusion", (100, 300, 400)),
        Bar(long, "", "function", (200, 0, 0)),
        Bar("cast", "", "function", (None, None, 200)),
    )
    engine = Box("engine", "tensorrt_0", ("1 x linear",), (), bars, ("read", "written", "kept"))
    page = html_page({"forward": Picture(boxes=[Box("input or output", "x"), engine])}, "model")
    click = "document.querySelectorAll('g.box')[1].dispatchEvent(new Event('click'));"
    closed, opened = shown(page, tmp_path), shown(page, tmp_path, click)
    assert 'aria-expanded="false"' in closed
    assert "▸ tensorrt_0" in closed
    assert closed.count('class="bar"') == 0
    assert shown(page, tmp_path, click * 2).count('class="bar"') == 0
    assert 'aria-expanded="true"' in opened
    drawn = opened.partition("<svg")[2].partition("</svg>")[0]
    assert "1 x linear" not in drawn
    assert f">{long}</text>" not in drawn
    rects = re.findall(r'<rect class="bar" .*?width="([\d.]+)" height="11"', opened)
    widths = [float(width) for width in rects]
    assert widths == pytest.approx([37.5, 112.5, 150, 75, 75])
    assert "800 B</text>" in opened
    assert "200 B + unknown</text>" in opened
    assert "written: unknown" in opened
