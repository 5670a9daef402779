"""Options as people write them, and as `pumice.backend.Options` has them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypedDict

from .backend import OnOom, Options
from .bounded_text import short_repr
from .errors import BadOption

__all__ = ["Asked", "grow", "merge"]

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_PART_OF_A_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_WANTED_DURATION = 'seconds or text such as "90s", "15m", "1h30m" are wanted'
_ENDLESS_SECONDS = 1e12
_MOST = (1 << 31) - 1
_LEAST_MEMORY = 1 << 20
_SURELY_MEBIBYTES = 256
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{prefix}i": 1 << 10 * (power + 1) for power, prefix in enumerate("KMGTP")
}
_ON_OOM_WORDS = {"factor", "step", "max", "ceiling", "tries"}


class Asked(TypedDict, total=False):
    """What `@task(...)`, `.options(...)` and `Executor(...)` take."""

    cpu: float | str
    memory: str | int
    gpu: int
    queue: str
    zone: str
    priority: str
    image: str
    retries: int
    on_oom: OnOom | str | None
    min_success: float | int | str
    max_parallel: int
    timeout: float | str | timedelta
    allow_pickle: bool
    env: Mapping[str, str]
    name: str


def grow(factor: float, ceiling: str | None = None, tries: int = 3) -> OnOom:
    """More memory for a call that ran out of it: `grow(1.5, "64Gi")` gives half as much again, at most 64 GiB."""
    return _checked_on_oom(OnOom(factor=factor, ceiling=ceiling, tries=tries))


def merge(base: Options, asked: Mapping[str, Any]) -> Options:
    """The options with what was asked for put in."""
    readers: dict[str, Callable[[str, Any], Any]] = {
        "cpu": _amount,
        "memory": _amount,
        "gpu": _count,
        "retries": _count,
        "max_parallel": _positive,
        "on_oom": _on_oom,
        "min_success": _min_success,
        "timeout": _timeout,
        "allow_pickle": _flag,
        "env": _env,
    }
    read: Callable[[str, Any], Any]
    changes: dict[str, Any] = {}
    for name, value in asked.items():
        if name not in Asked.__annotations__:
            raise BadOption(f"There is no option {name!r}; there are: {', '.join(sorted(Asked.__annotations__))}.")
        read = readers.get(name, _text)
        changes[name] = None if value is None and name not in ("env", "retries", "allow_pickle") else read(name, value)
    return dataclasses.replace(base, **changes)


def _bad(name: str, value: object, wanted: str) -> BadOption:
    return BadOption(f"{name}={short_repr(value)} can't be meant: {wanted}.")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _bad(name, value, "a name is wanted")
    return value


def _amount(name: str, value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else short_repr(value) if isinstance(value, int) else str(value)
    amount = _AMOUNT.fullmatch(text)
    if isinstance(value, bool) or amount is None:
        raise _bad(name, value, 'write an amount as Kubernetes does, "500m", "2", "4Gi"')
    if name == "memory":
        _check_memory(value, amount[1], amount[2] or "")
    return text


def _check_memory(value: Any, number: str, unit: str) -> None:
    """Refuse what is less than any program needs: its unit was forgotten, or is another than was meant."""
    if unit == "m":
        raise _bad("memory", value, 'that is thousandths of a byte; mebibytes are "Mi"')
    amount = float(number) * _FACTORS[unit]
    if 0 < amount < _LEAST_MEMORY:
        meant = "Gi" if not unit and amount < _SURELY_MEBIBYTES else "Mi"
        raise _bad(
            "memory", value, f'that is {amount:,.0f} bytes, less than any program needs; "{number}{meant}" may be meant'
        )


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _bad(name, value, "True or False is wanted")
    return value


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise _bad(name, value, f"a whole number from 0 to {_MOST:,} is wanted")
    return value


def _positive(name: str, value: Any) -> int:
    if _count(name, value) == 0:
        raise _bad(name, value, f"a whole number from 1 to {_MOST:,} is wanted")
    return int(value)


def _min_success(name: str, value: Any) -> float | int:
    if isinstance(value, str) and value.endswith("%"):
        try:
            value = float(value[:-1]) / 100
        except ValueError as error:
            raise _bad(name, value, "a percentage is wanted") from error
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise _bad(name, value, 'a share (0.99, "99%") or a count (990) is wanted')
    if isinstance(value, float) and value > 1:
        raise _bad(name, value, "a share is at most 1.0; write a count without a point")
    return value


def _timeout(name: str, value: Any) -> float:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        parts = _PART_OF_A_DURATION.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            raise _bad(name, value, _WANTED_DURATION)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value) if value < _ENDLESS_SECONDS else math.inf
    else:
        raise _bad(name, value, _WANTED_DURATION)
    if not 0 < seconds < float("inf"):
        raise _bad(name, value, "it must be above 0, and have an end")
    return seconds


def _env(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise _bad(name, value, "a dict of texts is wanted")
    wrong = [variable for variable in value if not variable or "=" in variable or "\0" in variable + value[variable]]
    if wrong:
        raise _bad(name, value, f"{wrong[0]!r} can't be a variable")
    return dict(value)


def _on_oom(name: str, value: Any) -> OnOom:
    if isinstance(value, OnOom):
        return _checked_on_oom(value)
    if not isinstance(value, str):
        raise _bad(name, value, 'pumice.grow(1.5, "64Gi") or "factor=1.5,max=64Gi" is wanted')
    words = dict(part.strip().partition("=")[::2] for part in value.split(","))
    if not words.keys() <= _ON_OOM_WORDS:
        raise _bad(name, value, f"it takes {', '.join(sorted(_ON_OOM_WORDS))}")
    try:
        return _checked_on_oom(
            OnOom(
                factor=float(words["factor"]) if "factor" in words else None,
                step=words.get("step"),
                ceiling=words.get("max", words.get("ceiling")),
                tries=int(words.get("tries", "3")),
            )
        )
    except ValueError as error:
        raise _bad(name, value, str(error)) from error


def _checked_on_oom(value: OnOom) -> OnOom:
    if value.factor is not None and not 1 < value.factor <= 100:
        raise _bad("on_oom", value.factor, "a factor is above 1 and at most 100")
    if value.factor is not None and value.step is not None:
        raise _bad("on_oom", value, "it has a factor or a step, not both")
    for amount in (value.step, value.ceiling):
        if amount is not None:
            _amount("memory", amount)
    if not 1 <= value.tries <= 100:
        raise _bad("on_oom", value.tries, "tries are 1 to 100")
    return value
