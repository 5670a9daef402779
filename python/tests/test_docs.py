"""The examples of docs/python.md run, one after the other, and write what stands below them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "python.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
MARK = "---8<---"


def test_the_examples_write_what_the_page_says(tmp_path):
    examples = EXAMPLE.findall(PAGE.read_text())
    assert len(examples) >= 8
    script = tmp_path / "page.py"
    script.write_text("".join(f"{code}\nprint({MARK!r}, flush=True)\n" for code, _ in examples))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    written = done.stdout.split(f"{MARK}\n")
    for (code, expected), found in zip(examples, written, strict=False):
        assert [line.rstrip() for line in found.splitlines()] == [line.rstrip() for line in expected.splitlines()], code
