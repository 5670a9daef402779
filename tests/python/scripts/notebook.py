"""Functions of several cells of a notebook, as IPython runs them."""

from __future__ import annotations

import sys

from IPython.core.interactiveshell import InteractiveShell

import __main__
from cases import here, run, task

shell = InteractiveShell.instance(user_module=__main__)
cells: list[str] = []


def cell(text: str) -> str:
    """Run a cell; the name that IPython shows for it."""
    done = shell.run_cell(text, store_history=True)
    done.raise_error()
    cells.append(f"Cell In[{shell.execution_count - 1}]")
    return cells[-1]


cell("import functools, dataclasses\nRATE = 2")
HELPER = cell("@functools.cache\ndef helper(x):\n    return x * RATE\n\ndef fails(x):\n    raise ValueError('odd')\n")
CALLER = cell("def caller(x):\n    return helper(x) + 1\n\ndef calls(x):\n    y = x\n    return fails(y)\n")
cell("@dataclasses.dataclass\nclass Point:\n    x: int\n\ndef point(x):\n    import json\n    return Point(x)\n")


@here("a function of a cell calls one of another", [3, 5])
def _():
    return task(__main__.caller).map([1, 2]).results(100)


@here("a class of a cell comes back", True)
def _():
    return task(__main__.point).map([1]).results(100) == [__main__.Point(1)]


@here("a traceback tells the cells apart, with their code", (True, True, True, True))
def _():
    failed = task(__main__.calls).map([1]).wait(100).failed[0].error
    lines = failed.traceback.splitlines()
    caller = next(number for number, line in enumerate(lines) if line.endswith("in calls"))
    fails = next(number for number, line in enumerate(lines) if line.endswith("in fails"))
    return (
        lines[caller] == f"  {CALLER}, line 6, in calls",
        lines[caller + 1] == "    return fails(y)",
        lines[fails] == f"  {HELPER}, line 6, in fails",
        lines[fails + 1] == "    raise ValueError('odd')",
    )


@here("a cell that runs again counts", ([2], [-1], [True]))
def _():
    import tempfile

    with tempfile.TemporaryDirectory() as store:
        shell.run_cell("def again(x):\n    return x + 1\n").raise_error()
        first = task(__main__.again).map([1], store=store).results(100)
        shell.run_cell("def again(x):\n    return x - 2\n").raise_error()
        second = task(__main__.again).map([1], store=store).results(100)
        shell.run_cell("# the first one\ndef again(x):\n\n    return x + 1\n").raise_error()
        third = task(__main__.again).map([1], store=store).wait(100)
    return first, second, [item.from_store for item in third.items]


sys.stdout.flush()
run()
