"""Tracebacks of calls as text: from the user's first frame on, of bounded length, with the lines of code.

A worker writes what it knows. Lines of cells of a notebook, and of files that only this machine has, are put in where the
text is read.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .bounded_text import shortened

__all__ = ["summary_of", "text_of", "with_code"]

_LIMIT = 12_000
"""Most characters of a traceback."""
_FRAME = re.compile(r'  File "([^"\n]+)", line (\d+)(, in .*)?')
_CODE = "    "
_LIBRARY = str(Path(__file__).parent)


def text_of(error: BaseException) -> str:
    """The traceback of an exception that a call has raised, without the frames of this library at its top."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_LIBRARY):
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001 - a user's exception may fail at telling what it is
        text = "".join(traceback.format_tb(trace)) + summary_of(error) + "\n"
    return shortened(text, _LIMIT)


def summary_of(error: BaseException) -> str:
    """The last lines of its traceback: kind and message."""
    import traceback

    try:
        return "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # noqa: BLE001 - as above
        return f"{type(error).__qualname__}, which can't say what it is about"


def with_code(text: str) -> str:
    """The text of a traceback with the lines of code that only this process knows; cells are `Cell In[3]`."""
    import linecache

    lines = text.split("\n")
    whole: list[str] = []
    for number, line in enumerate(lines):
        frame = _FRAME.fullmatch(line)
        if frame is None:
            whole.append(line)
            continue
        file, at, where = frame[1], int(frame[2]), frame[3] or ""
        cell = _cell(file)
        whole.append(f"  {cell}, line {at}{where}" if cell is not None else line)
        followed = number + 1 < len(lines) and lines[number + 1].startswith(_CODE)
        code = "" if followed else linecache.getline(file, at).strip()
        if code:
            whole.append(_CODE + shortened(code, 200))
    return shortened("\n".join(whole), _LIMIT * 5 // 4)


def _cell(file: str) -> str | None:
    """What a notebook calls the cell whose code it has compiled under a name; None for files."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    return " ".join(name) if name is not None else None
