"""The ten-minute tutorial, followed to the letter on a real `pumice up`; its notebook is run by nbconvert."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tutorial import Block, blocks, cells, commands, lines_of_code, shows
from up import BINARIES, Platform

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "notebook"
ENGLISH = (ROOT / "docs" / "tutorial.md").read_text()
CHINESE = (ROOT / "docs" / "tutorial.zh-CN.md").read_text()
PAGE = blocks(ENGLISH)
NOT_THE_READERS = "prices.py"
TIMEOUT = 240


@pytest.mark.parametrize(
    ("shown", "found", "same"),
    [
        ("", "", True),
        ("", "a\n", False),
        ("a\n", "", False),
        ("a  \nb\n", "a\nb  \n", True),
        ("node …\n", "node n7\n", True),
        ("node …\n", "node \n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nz\n", True),
        ("a\n…\nz\n", "a\nb\n", False),
        ("(a)\n", "a\n", False),
    ],
)
def test_what_a_page_shows_is_compared(shown, found, same):
    assert shows(shown, found) == same


def test_both_languages_show_the_same():
    assert blocks(CHINESE) == PAGE
    for mark in (r"^#+ ", r"!\[.*?\]\((.*?)\)", r"(?<!!)\[.*?\]\(([^#]*?)\)"):
        english, chinese = (re.findall(mark, page.replace(".zh-CN.md", ".md"), re.MULTILINE) for page in (ENGLISH, CHINESE))
        assert len(english) == len(chinese) and (mark == "^#+ " or {*english} == {*chinese}), mark


def test_the_readers_lines_are_counted():
    own = [block.text for block in PAGE if block.language == "python" and block.file != NOT_THE_READERS]
    count = sum(map(lines_of_code, own))
    assert {int(said) for said in re.findall(r"(\d+) lines", ENGLISH)} == {count}
    assert {int(said) for said in re.findall(r"(\d+) 行", CHINESE)} == {count}


def test_the_example_is_the_page():
    assert {block.file: block.text for block in PAGE if block.file} == {
        path.name: path.read_text() for path in EXAMPLE.glob("*.py")
    }
    notebook = nbformat.read(EXAMPLE / "trades.ipynb", 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.source for cell in code] == [cell.line for cell in cells(PAGE)]
    assert all(not cell.outputs and cell.execution_count is None for cell in code), "commit it without outputs"


class Reader:
    """Who follows the page in a folder of their own."""

    def __init__(self, folder: Path, platform: Platform) -> None:
        self._folder = folder
        programs = [str(BINARIES), str(Path(sys.executable).parent), os.environ["PATH"]]
        self._environ = {
            **os.environ,
            "PATH": os.pathsep.join(programs),
            "PUMICE_DATA_DIR": str(platform.data_dir),
            "HOME": str(folder),
            "PUMICE_CACHE": str(folder / "cache"),
        }

    def follow(self, block: Block) -> None:
        """Do what a block says, unless it is a cell."""
        if block.file is not None:
            (self._folder / block.file).write_text(block.text)
        elif block.language == "console":
            for command in commands(block):
                found = self._run(["bash", "-c", command.line])
                assert shows(command.shown, found), f"$ {command.line}\n{found}"

    def run_notebook(self) -> list[list[Mapping[str, Any]]]:
        """Run the example's notebook here; the outputs of each of its code cells."""
        (self._folder / "trades.ipynb").write_bytes((EXAMPLE / "trades.ipynb").read_bytes())
        self._run(["jupyter", "nbconvert", "--to", "notebook", "--execute", "trades.ipynb", "--output", "done.ipynb"])
        done = nbformat.read(self._folder / "done.ipynb", 4)
        return [cell.outputs for cell in done.cells if cell.cell_type == "code"]

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self._folder, env=self._environ, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def text_of(outputs: list[Mapping[str, Any]]) -> str:
    """What a cell gave: its value as text, or the exception."""
    last = outputs[-1]
    return f"{last['ename']}: {last['evalue']}" if last["output_type"] == "error" else last["data"]["text/plain"]


def test_the_page_is_followed(tmp_path, platform):
    reader = Reader(tmp_path, platform)
    first, *rest = PAGE
    assert (first.language, first.text.splitlines()[1:]) == ("sh", ["jobctl run -- echo hello"]), "two commands"
    reader.follow(Block("console", "$ jobctl run -- echo hello\nhello\n", None))
    notebook = next(at for at, block in enumerate(rest) if block.language == "python" and block.file is None)
    for block in rest[:notebook]:
        reader.follow(block)
    outputs = reader.run_notebook()
    for cell, output in zip(cells(PAGE), outputs, strict=True):
        assert not cell.shown or shows(cell.shown, text_of(output)), f"{cell.line}\n{text_of(output)}"
    progress, view = (outputs[cell][0]["data"]["text/html"] for cell in (0, 1))
    assert re.search(r">succeeded<.*>21<", progress), "the first cell shows how it goes, to the end of the retry"
    assert re.search(r">succeeded<.*>failed<.*>20<.*>1<", view), view
    assert "<td>2024-01-10</td><td>raised ValueError: could not convert string" in view
    for block in rest[notebook:]:
        reader.follow(block)
