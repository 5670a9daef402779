"""Whether one Python can run what another has pickled."""

from __future__ import annotations

from .errors import EnvironmentMismatch

__all__ = ["check_python"]


def check_python(client: str, worker: str) -> None:
    """Refuse to run on another minor version than pickled it: functions by value are bytecode."""
    if client.split(".")[:2] != worker.split(".")[:2]:
        raise EnvironmentMismatch(
            f"This is Python {client}, the workers run Python {worker}: a function sent to them is bytecode, which differs. "
            f"Use an image with Python {'.'.join(client.split('.')[:2])}, or run this with Python {worker}."
        )
