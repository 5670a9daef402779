"""How a process ended under the record it ran, as a failure."""

from __future__ import annotations

import signal

from .backend import Failure

__all__ = ["of_process", "took_too_long"]


def of_process(code: int, *, oom: bool, log_lines: tuple[str, ...], node: str | None, attempt: int) -> Failure:
    """The failure of a record whose process ended; `code` is its exit code, negative for a signal."""
    number = -code if code < 0 else None
    oom = oom and number == signal.SIGKILL
    if number is not None:
        by = " for memory" if oom else ""
        message = f"its process was killed{by} by signal {number} ({_signal_name(number)})"
    else:
        message = f"its process ended with exit code {code}"
    exit_code = None if number is not None else code
    return Failure(
        "killed", message, log_lines=log_lines, exit_code=exit_code, signal=number, oom=oom, node=node, attempt=attempt
    )


def took_too_long(timeout: float) -> Failure:
    """The failure of a record whose process was killed for its `timeout` in seconds."""
    return Failure("timeout", f"took longer than its timeout of {timeout:g} s", signal=signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
