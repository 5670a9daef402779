"""The blocks of a tutorial's page: what a reader writes into files, types in a terminal and runs in a notebook.

Where a block is the content of a file, the line above it names that. In what is shown below a command or a cell `…` stands
for what differs from run to run, and a line of only that for any number of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = re.compile(r"(?:`(?P<file>[\w.]+)`[:\uff1a]\n\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
VARIES = "…"


class Block(NamedTuple):
    """A block of code, or of what it writes."""

    language: str
    text: str
    file: str | None


class Command(NamedTuple):
    """A command of a terminal, and what it is said to write."""

    line: str
    shown: str


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    return [Block(found["language"], found["text"], found["file"]) for found in BLOCK.finditer(page)]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a terminal's block."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        yield Command(line, shown)


def cells(page: list[Block]) -> Iterator[Command]:
    """The cells of the page's notebook, with what they are said to give; nothing where the page is silent."""
    for block, below in zip(page, [*page[1:], None], strict=True):
        if block.language == "python" and block.file is None:
            yield Command(block.text.rstrip("\n"), below.text if below is not None and below.language == "text" else "")


def lines_of_code(text: str) -> int:
    """How many lines say something."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def shows(shown: str, found: str) -> bool:
    """Whether a page shows what was found; blanks at the ends of lines don't count."""
    lines = [r"(?:.*\n)*?" if line == VARIES else _pattern(line) + r"\n" for line in _trimmed(shown)]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in _trimmed(found))) is not None


def _pattern(line: str) -> str:
    return ".+".join(re.escape(part) for part in line.split(VARIES))


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip("\n").split("\n")] if text.strip("\n") else []
