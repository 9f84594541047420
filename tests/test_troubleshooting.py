"""docs/troubleshooting/ has every message of the sources, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.messages import HOLE, messages_of_cpp, messages_of_python

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("docs/troubleshooting/*.md"))
READERS = {".py": messages_of_python, ".cpp": messages_of_cpp, ".h": messages_of_cpp}
FILES = sorted(path for path in ROOT.glob("trt_et/**/*") if path.suffix in READERS)
MESSAGES = {text: path for path in FILES for text in READERS[path.suffix](path.read_text())}


def entries() -> dict[str, str]:
    """Message to page."""
    found = {}
    for page in PAGES:
        for table in re.findall(
            r"^\| message \|.*\n\|[-|]+\n((?:\|.*\n)+)", page.read_text(), re.M
        ):
            for row in table.splitlines():
                cells = re.split(r" \| ", row.removeprefix("| ").removesuffix(" |"))
                assert len([cell for cell in cells if cell]) == 3, f"{page.name}: {row}"
                for message in cells[0].split("<br>"):
                    assert re.fullmatch(r"`[^`]+`", message), f"{page.name}: {message}"
                    assert message.strip("`") not in found, f"{page.name}: {message} is there twice"
                    found[message.strip("`")] = page.name
    return found


def pattern(entry: str) -> re.Pattern[str]:
    """``...`` is one varying part; after a beginning of some words it is the rest of a message."""
    begin = entry.removesuffix("...")
    shortened = begin != entry and len(begin.replace("...", "")) >= 20
    parts = (begin if shortened else entry).split("...")
    text = rf"(?:{HOLE}|\.\.\.)".join(map(re.escape, parts))
    return re.compile(text + ".*" * shortened)


def test_every_message_has_an_entry():
    assert len(MESSAGES) > 400
    known = [pattern(entry) for entry in entries()]
    missing = [
        f"{path.relative_to(ROOT)}: {text.replace(HOLE, '...')}"
        for text, path in MESSAGES.items()
        if not any(one.fullmatch(text) for one in known)
    ]
    assert not missing, "\n".join(missing)


def test_every_entry_is_a_message():
    unknown = [
        f"{page}: {entry}"
        for entry, page in entries().items()
        if not any(map(pattern(entry).fullmatch, MESSAGES))
    ]
    assert not unknown, "\n".join(unknown)


def test_no_entry_is_without_words():
    assert [one for one in entries() if len(re.findall("[a-z]", one)) < 4] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raise OptionError(f"{a} is {b!r}; expected {c}")', {"* is *; expected *"}),
        ('raise BuilderError("a" + ("b" if c else "c"))', {"ab", "ac"}),
        ('m = "no GPU"\nraise RunError(m)', {"no GPU"}),
        ('job.failed(BuilderError("it ended"))', {"it ended"}),
        ('_log.warning("%s of %d", a, b)', {"* of *"}),
        ('_log.info("done")', set()),
        ('raise ValueError("a bug")', set()),
        ("raise RunError(str(error))", set()),
    ],
)
def test_messages_of_python(code, found):
    assert {text.replace(HOLE, "*") for text in messages_of_python(code)} == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (
            'return fail(Error::NotFound, "no %s on %.60s: "\n  "install %d", a, b, c);',
            "no * on *: install *",
        ),
        ('return {Error::Internal, "a (b), c"};', "a (b), c"),
        ('return fail(Error::Internal, a ? "b: %s" : "c?", d);', {"b: *", "c?"}),
        ('reader.refuse("has no " + key);', "*: has no *"),
        ('refuse(std::string(key) + " is wrong");', "*: * is wrong"),
        ('log(LogLevel::error, "TensorRTBackend: bad %s", a);', "bad *"),
        ('log(LogLevel::debug, "TensorRTBackend: good");', set()),
        ('std::fprintf(stderr, "executor_runner: %s\\n", a);', set()),
        ('// fail("no");', set()),
        ('return fail(error, "%s", text);', set()),
    ],
)
def test_messages_of_cpp(code, found):
    expected = {found} if isinstance(found, str) else found
    assert {text.replace(HOLE, "*") for text in messages_of_cpp(code)} == expected
