"""A back end for users' tests: calls run in this process, in order, and those it is told to fail do."""

from __future__ import annotations

import pickle
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .backend import Change, Failure, JobSpec, OnChange, Outcome, State, register
from .calls import run
from .errors import PumiceError, Refused
from .outcome import is_success

__all__ = ["FakeBackend", "FakeJob"]

_NODE = "fake-node"


@dataclass(slots=True)
class _Script:
    """What is to happen to one key."""

    failures: list[Failure] = field(default_factory=list)
    """For the first attempts, one each."""
    always: Failure | None = None
    wait: str | None = None


class FakeJob:
    """A job in which all that will happen has happened when it is submitted, but for records that wait."""

    def __init__(self, id_: str, spec: JobSpec, on_change: OnChange) -> None:
        self._id = id_
        self.spec = spec
        self.on_change = on_change
        self.waiting: dict[int, str] = {}
        self.lines: dict[int, tuple[str, ...]] = {}
        self.closed = False

    @property
    def id(self) -> str:
        """`fake/NAME-NUMBER`."""
        return self._id

    def outcomes(self, indexes: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
        """They come with the changes."""
        raise PumiceError("The outcomes of a fake job come with its changes.")

    def cancel(self, indexes: Iterable[int] | None = None, *, running: bool = True) -> frozenset[int]:
        """Cancel records that wait."""
        cancelled = [index for index in (self.waiting if indexes is None else indexes) if index in self.waiting]
        for index in cancelled:
            del self.waiting[index]
        self.on_change([Change(index, State.CANCELLED) for index in cancelled])
        return frozenset(cancelled)

    def logs(self, index: int, *, tail: int | None = None) -> Iterator[str]:
        """The lines its failure was scripted with."""
        lines = self.lines.get(index, ())
        return iter(lines if tail is None else lines[-tail:])

    def why(self) -> str | None:
        """The first reason that was scripted for a record that waits."""
        return next(iter(self.waiting.values()), None)

    def close(self) -> None:
        """Take note of it."""
        self.closed = True


class FakeBackend:
    """Runs calls in this process when they are submitted. `jobs` has all that were."""

    def __init__(self) -> None:
        self.jobs: list[FakeJob] = []
        self._scripts: dict[str, _Script] = {}
        self._refusal: str | None = None

    @property
    def name(self) -> str:
        """Under which it was registered."""
        return "fake"

    @property
    def python(self) -> str:
        """It runs this Python."""
        return platform.python_version()

    @property
    def slots(self) -> int:
        """Calls run one after the other."""
        return 1

    @property
    def gather(self) -> float:
        """Each call at once."""
        return 0.0

    def fail(
        self,
        key: str,
        message: str = "was told to fail",
        *,
        times: int | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
        oom: bool = False,
        node: str = _NODE,
        why: str | None = None,
        log_lines: Iterable[str] = (),
    ) -> FakeBackend:
        """Let the record of that key fail, in its first attempts or (`times=None`) in all of them."""
        killed = signal is not None or exit_code is not None or oom
        failure = Failure(
            "killed" if killed else "error",
            message,
            log_lines=tuple(log_lines),
            exit_code=exit_code,
            signal=9 if oom and signal is None else signal,
            oom=oom,
            node=node,
            why=why,
        )
        script = self._scripts.setdefault(key, _Script())
        if times is None:
            script.always = failure
        else:
            script.failures += [failure] * times
        return self

    def hold(self, key: str, why: str) -> FakeBackend:
        """Let the record of that key wait for ever, for this reason."""
        self._scripts.setdefault(key, _Script()).wait = why
        return self

    def refuse(self, message: str) -> FakeBackend:
        """Refuse the jobs that follow."""
        self._refusal = message
        return self

    def submit(self, spec: JobSpec, on_change: OnChange) -> FakeJob:
        """Run all of a job."""
        if self._refusal is not None:
            raise Refused(self._refusal)
        job = FakeJob(f"fake/{spec.options.name or 'job'}-{len(self.jobs) + 1}", spec, on_change)
        self.jobs.append(job)
        function = pickle.loads(spec.function)
        for index, record in enumerate(spec.records):
            script = self._scripts.get(record.key, _Script())
            if script.wait is not None:
                job.waiting[index] = script.wait
                on_change([Change(index, State.WAITING, why=script.wait)])
                continue
            for attempt in range(1, spec.options.retries + 2):
                on_change([Change(index, State.RUNNING, attempt, node=_NODE)])
                scripted = script.failures.pop(0) if script.failures else script.always
                started = time.time()
                outcome: Outcome = scripted if scripted is not None else run(function, record.args, attempt, tuple)
                success = isinstance(outcome, bytes) and is_success(outcome)
                if success or attempt > spec.options.retries:
                    break
            if isinstance(outcome, Failure):
                job.lines[index] = outcome.log_lines
            state = State.SUCCEEDED if success else State.FAILED
            seconds = time.time() - started
            on_change([Change(index, state, attempt, node=_NODE, outcome=outcome, started=started, seconds=seconds)])
        return job

    def close(self) -> None:
        """Nothing is open."""


register("fake", FakeBackend)
