"""Tracebacks of calls as text: from the user's code on, bounded, with lines of code."""

from __future__ import annotations

import linecache
import sys
import types

import pytest

from pumice.bounded_text import short_repr, shortened
from pumice.tracebacks import text_of, with_code

HEAD = "Traceback (most recent call last):\n"
END = "ValueError: odd\n"


@pytest.fixture
def cell(monkeypatch):
    """A notebook whose third cell was compiled under a name."""
    name = "/tmp/ipykernel_1/3.py"
    monkeypatch.setitem(linecache.cache, name, (30, None, ["def f():\n", "    raise ValueError('odd')\n"], name))
    shell = types.SimpleNamespace(
        compile=types.SimpleNamespace(format_code_name=lambda file: ("Cell", "In[3]") if file == name else None)
    )
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    return name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('  File "{cell}", line 2, in f\n', "  Cell In[3], line 2, in f\n    raise ValueError('odd')\n"),
        ('  File "{cell}", line 2, in f\n    here already\n', "  Cell In[3], line 2, in f\n    here already\n"),
        ('  File "{cell}", line 9, in f\n', "  Cell In[3], line 9, in f\n"),
        ('  File "/not/there.py", line 2, in f\n', '  File "/not/there.py", line 2, in f\n'),
        ('  File "<string>", line 2\n    x = \n', '  File "<string>", line 2\n    x = \n'),
        (f'  File "{__file__}", line 1, in f\n', f'  File "{__file__}", line 1, in f\n    {linecache.getline(__file__, 1)}'),
    ],
)
def test_lines_of_code_are_put_in_where_they_are_known(cell, text, expected):
    assert with_code(HEAD + text.format(cell=cell) + END) == HEAD + expected + END


def test_without_a_notebook_nothing_is_a_cell(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert (
        with_code(HEAD + '  File "/not/there.py", line 2, in f\n' + END)
        == HEAD + '  File "/not/there.py", line 2, in f\n' + END
    )


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


def test_a_long_text_keeps_its_beginning_and_its_end():
    text = text_of(raised(ValueError("begin" + "x" * (1 << 20) + "end")))
    assert len(text) < 13_000 and text.startswith(HEAD) and text.rstrip().endswith("end") and "characters ...]" in text
    many = HEAD + "".join(f'  File "/not/there-{number}.py", line 1, in f\n' for number in range(100_000)) + END
    assert len(with_code(many)) < 16_000


class Broken:
    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(value, id=str(number))
        for number, value in enumerate(
            ["x" * 10**6, list(range(10**6)), {"k" * 10**6: "v" * 10**6}, 10**5000, Broken(), [Broken()], [[[[[[[1]]]]]]]]
        )
    ],
)
def test_a_short_repr_is_short_whatever_it_is_of(value):
    assert 0 < len(short_repr(value)) < 200


def test_what_is_short_stays_as_it_is():
    assert short_repr({"a": [1, "b"]}) == "{'a': [1, 'b']}" and shortened("short") == "short"
    assert shortened("a" * 600 + "b" * 600, 100).startswith("aaa") and len(shortened("a" * 5000, 100)) < 150
