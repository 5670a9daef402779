"""What the programs beside this file are made of: cases, each with a name, what runs, and what is expected.

A program runs its cases on the back end that `CASES_ON` names, and prints them as one line of JSON. All that runs elsewhere
does so in one map, what runs here in a few threads, as most of it waits.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pumice

# What a pod asks for: a fleet has to know it.
SMALL = {"cpu": 1, "memory": "256Mi"}
_THREADS = 4


@dataclass
class _Case:
    name: str
    expected: str
    function: Callable[[], Any]


_there: list[_Case] = []
_here: list[_Case] = []


def task(function: Callable[..., Any], **asked: Any) -> pumice.Task[..., Any]:
    """A task that each back end takes."""
    return pumice.task(**{**SMALL, **asked})(function)


def there(name: str, expected: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """The function runs elsewhere, and gives this value."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        _there.append(_Case(name, repr(expected), function))
        return function

    return add


def here(name: str, expected: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """The function runs here, has something run elsewhere, and gives this value."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        _here.append(_Case(name, repr(expected), function))
        return function

    return add


def refused(name: str, said: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """The function is refused before anything runs, and the error says this among other things."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        def submit() -> str:
            try:
                task(function).submit()
            except pumice.PumiceError as error:
                return said if said in str(error) else f"{type(error).__name__}: {error}"
            return "it was not refused"

        _here.append(_Case(name, repr(said), submit))
        return function

    return add


def _call(function: Callable[[], Any]) -> Any:
    return function()


def _answers_from_there() -> list[tuple[_Case, str]]:
    if not _there:
        return []
    names = {id(case.function): case.name for case in _there}
    functions = [case.function for case in _there]
    result = task(_call).map(functions, key=lambda function: names[id(function)], min_success=0, chunk=len(functions))
    result.wait(100)
    return [
        (case, repr(item.value) if item.error is None else f"failed: {item.error}")
        for case, item in zip(_there, result.items, strict=True)
    ]


def _answer_from_here(case: _Case) -> tuple[_Case, str]:
    try:
        return case, repr(case.function())
    except BaseException:  # noqa: BLE001 - whatever it is, it is the answer
        return case, traceback.format_exc()


def _back_end() -> pumice.Backend:
    which, _, folder = os.environ["CASES_ON"].partition(":")
    if which == "local":
        return pumice.local(2)
    return pumice.context("grid", folder=folder) if which == "fleet" else pumice.current()


def run() -> None:
    """Run all and print how each went."""
    with pumice.use(_back_end()), ThreadPoolExecutor(_THREADS) as threads:
        elsewhere = threads.submit(_answers_from_there)
        answers = [*threads.map(_answer_from_here, _here), *elsewhere.result()]
    told = [{"name": case.name, "expected": case.expected, "answer": answer} for case, answer in answers]
    json.dump(told, sys.stdout)
    sys.stdout.flush()
