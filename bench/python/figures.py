"""What the measurements in Python print: a line of JSON for each figure, which `pumice_bench::python` takes."""

from __future__ import annotations

import json
import os

__all__ = ["size", "tell", "wants"]


def tell(name: str, value: float, unit: str, count: int = 1) -> None:
    """Write a figure; `count` is how many measurements it stands for."""
    print(json.dumps({"name": name, "value": value, "unit": unit, "n": count}), flush=True)  # noqa: T201 - the result


def scale() -> float:
    """The share of the full size that is wanted."""
    return float(os.environ.get("PUMICE_BENCH_SCALE") or 1)


def size(full: int, least: int = 2) -> int:
    """`full` at this run's scale."""
    return max(round(full * scale()), least)


def wants(name: str) -> bool:
    """Whether a scenario is asked for."""
    only = [word for word in os.environ.get("PUMICE_BENCH_ONLY", "").split(",") if word]
    return not only or any(word in name for word in only)
