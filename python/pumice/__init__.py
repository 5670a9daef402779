"""Pumice: run a function over thousands of parameters, on this machine or on the platform.

Names are imported when they are first used, so that `import pumice` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import Backend as Backend
    from .backend import Failure as Failure
    from .backend import OnOom as OnOom
    from .backend import Options as Options
    from .backend import State as State
    from .backend import register as register
    from .calendars import days as days
    from .choice import context as context
    from .choice import current as current
    from .choice import fake as fake
    from .choice import local as local
    from .choice import use as use
    from .errors import BadOption as BadOption
    from .errors import BelowMinSuccess as BelowMinSuccess
    from .errors import EnvironmentMismatch as EnvironmentMismatch
    from .errors import MissingExtension as MissingExtension
    from .errors import NoBackend as NoBackend
    from .errors import NotMarked as NotMarked
    from .errors import NotPicklable as NotPicklable
    from .errors import PickleTooLarge as PickleTooLarge
    from .errors import PumiceError as PumiceError
    from .errors import Refused as Refused
    from .errors import TaskFailed as TaskFailed
    from .executor import Executor as Executor
    from .futures import Future as Future
    from .items import Done as Done
    from .items import Item as Item
    from .joblib_backend import register_joblib as register_joblib
    from .map_result import MapResult as MapResult
    from .option_values import Asked as Asked
    from .option_values import grow as grow
    from .parameters import grid as grid
    from .past import PastJob as PastJob
    from .past import PastSum as PastSum
    from .past import history as history
    from .past import history_of as history_of
    from .past import history_sums as history_sums
    from .reasons import why as why
    from .reasons import why_node as why_node
    from .reasons import why_queue as why_queue
    from .slices import checkpoint as checkpoint
    from .slices import shard as shard
    from .tasks import Task as Task
    from .tasks import task as task

_HOMES = {
    "option_values": ("Asked", "grow"),
    "backend": ("Backend", "Failure", "OnOom", "Options", "State", "register"),
    "calendars": ("days",),
    "choice": ("context", "current", "fake", "local", "use"),
    "errors": (
        "BadOption",
        "BelowMinSuccess",
        "EnvironmentMismatch",
        "MissingExtension",
        "NoBackend",
        "NotMarked",
        "NotPicklable",
        "PickleTooLarge",
        "PumiceError",
        "Refused",
        "TaskFailed",
    ),
    "executor": ("Executor",),
    "futures": ("Future",),
    "items": ("Done", "Item"),
    "joblib_backend": ("register_joblib",),
    "map_result": ("MapResult",),
    "parameters": ("grid",),
    "past": ("PastJob", "PastSum", "history", "history_of", "history_sums"),
    "reasons": ("why", "why_node", "why_queue"),
    "slices": ("checkpoint", "shard"),
    "tasks": ("Task", "task"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - the names are those of the table


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'pumice' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"pumice.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
