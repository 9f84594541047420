"""A graph as one page."""

from __future__ import annotations

import re

from trt_et.inspection.page import Box, Picture, box_lines, html_page


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
