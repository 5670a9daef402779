"""How terminals are drawn, and what the documents' pictures must not hold."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from pictures.svg import Cell, picture
from pictures.terminal import Terminal

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
NAMES = {"progress", "submit", "top", "watch", "why"}


def drawn(*rows: list[Cell]) -> list[tuple[str, dict[str, str], str]]:
    """The shapes of a picture, its ground left out: tag, attributes, text."""
    root = ElementTree.fromstring(picture(rows))
    shapes = [(shape.tag.partition("}")[2], dict(shape.attrib), shape.text or "") for shape in root]
    return [shape for shape in shapes if shape[0] != "style"][1:]


def test_text_is_escaped_and_stays_in_its_columns():
    ((tag, attributes, text),) = drawn([Cell(char) for char in "  <a> & b  "])
    assert (tag, text) == ("text", "<a> & b")
    assert (attributes["x"], attributes["textLength"]) == ("30.8", "58.8")


def test_a_bar_is_one_shape():
    ((tag, attributes, _),) = drawn([Cell("█"), Cell("█")])
    assert (tag, attributes["width"]) == ("rect", "16.8")


def test_what_is_left_of_a_bar_is_faint():
    bar, track = drawn([Cell("█"), Cell("░"), Cell("░")])
    assert (bar[1]["width"], track[1]["width"], track[1]["fill-opacity"]) == ("8.4", "16.8", "0.2")
    assert "fill-opacity" not in bar[1]


def test_what_is_reversed_has_a_ground():
    ground, letter = drawn([Cell("a", colour="red", bold=True, reversed=True)])
    assert ground[0] == "rect" and letter[1]["class"] == "b" and ground[1]["fill"] != letter[1]["fill"]


def test_lines_are_drawn_from_the_middle_of_a_cell():
    ((tag, attributes, _),) = drawn([Cell("└")])
    assert (tag, attributes["d"]) == ("path", "M18.2 23V14M18.2 23H22.4")


def test_a_terminal_shows_a_program_and_its_colours():
    terminal = Terminal(80, 5, dict(os.environ))
    with terminal.started("stty size; read name; printf '\\033[31m%s\\033[0m' $name") as program:
        assert program.read(lambda: "5 80" in terminal.text())
        program.press("n7\n")
    lines = terminal.text().splitlines()
    assert lines[1:4] == ["5 80", "n7", "n7"]
    svg = terminal.svg()
    assert "#f07178" in svg and 'height="100"' in svg, "four rows of five are drawn"


def test_a_terminal_says_when_a_program_ended_without_what_was_waited_for():
    terminal = Terminal(20, 3, dict(os.environ))
    with terminal.started("true") as program:
        assert not program.read(lambda: "never" in terminal.text())
    with pytest.raises(RuntimeError, match="ended with 3"):
        terminal.run("exit 3")


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_small_and_of_no_machine(path):
    text = path.read_text()
    ElementTree.fromstring(text)
    assert len(text) < 20_000
    assert not re.search(r"/(tmp|root|home|usr|var)/", text) and f">{os.uname().nodename}<" not in text


def test_each_picture_is_on_a_page():
    assert {path.stem for path in PICTURES} == NAMES
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    assert {*re.findall(r"!\[.+?\]\(pictures/(\w+)\.svg\)", pages)} == NAMES
