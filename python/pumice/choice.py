"""Which back end runs the work: the one given, the one in use, the one `PUMICE_BACKEND` names, or the platform."""

from __future__ import annotations

import importlib.util
import os
from types import TracebackType
from typing import TYPE_CHECKING

from . import backend
from .backend import Backend
from .errors import NoBackend

if TYPE_CHECKING:
    from .fake_backend import FakeBackend
    from .machine import LocalBackend
    from .platform import PlatformBackend

__all__ = ["Use", "context", "current", "fake", "local", "resolve", "use"]


class _Chosen:
    """The back end in use in this process."""

    given: Backend | None = None
    found: Backend | None = None


def local(workers: int | None = None) -> LocalBackend:
    """Processes of this machine, by default as many as it has cores."""
    from .machine import LocalBackend

    return LocalBackend(workers)


def fake() -> FakeBackend:
    """A back end for tests: runs calls in this process, in order, and fails those it is told to."""
    from .fake_backend import FakeBackend

    return FakeBackend()


def context(name: str | None = None, *, folder: str | os.PathLike[str] | None = None) -> PlatformBackend:
    """The platform, cluster or fleet of a context of `jobctl`, or the one in use.

    The work and its results lie in `folder`, which its pods must see at the same path; `PUMICE_CACHE` if it is None.
    The platform of this machine has one by itself.
    """
    from .platform import PlatformBackend

    return PlatformBackend(context=name, folder=folder)


class Use:
    """Ends the use of a back end where `with pumice.use(...)` ends, and closes it there if `use` made it."""

    def __init__(self, before: Backend | None, now: Backend, made: bool) -> None:
        self.backend = now
        self._before = before
        self._made = made

    def __enter__(self) -> Backend:
        return self.backend

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _Chosen.given = self._before
        if self._made:
            self.backend.close()


def use(which: Backend | str) -> Use:
    """Run all work on this back end from now on, or, as `with pumice.use(...)`, in a block."""
    chosen = backend.find(which) if isinstance(which, str) else which
    before, _Chosen.given = _Chosen.given, chosen
    return Use(before, chosen, isinstance(which, str))


def current() -> Backend:
    """The back end in use: what was asked for, else the platform."""
    if _Chosen.given is not None:
        return _Chosen.given
    if _Chosen.found is None:
        name = os.environ.get("PUMICE_BACKEND") or "platform"
        if name == "platform" and "PUMICE_BUNDLE" in os.environ:
            raise NoBackend(
                "This call runs in a pod, from which no jobs are submitted: return what is to run next, and map over it in "
                "the program. To use this pod's own processors, say so in the call: with pumice.use(pumice.local()): ..."
            )
        if name == "platform" and importlib.util.find_spec("pumice.platform") is None:
            raise NoBackend(
                "It isn't said where to run this, and the part that talks to the platform isn't installed. To run it on "
                "this machine, say so: pumice.use(pumice.local()), or PUMICE_BACKEND=local in the environment."
            )
        _Chosen.found = backend.find(name)
    return _Chosen.found


def resolve(which: Backend | str | None) -> tuple[Backend, bool]:
    """The back end meant, and whether it was made for this and is to be closed by who asks."""
    if which is None:
        return current(), False
    if isinstance(which, str):
        return backend.find(which), True
    return which, False
