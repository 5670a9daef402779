"""The back end of the platform, be it that of this machine, a cluster or a fleet: each shard is a pod of one job.

The work lies in a bundle (`pumice.workstore`) in a folder which the pods see too (`pumice.shared_folder`); `pumice.worker`
runs it there. How records went is read from the run's log when their pod ends; where the pod ended under them, the pod says
how. The log lies where others may write. So the pods mark what is theirs with a key (`pumice.run_key`), and nothing else is
unpickled.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import signal
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from . import _core, node_cache, outcome, run_key, workstore
from .backend import Change, Failure, JobSpec, OnChange, Outcome, State, register
from .calls import LOG_LINES
from .errors import NoBackend, Refused
from .exit_hooks import close_at_exit
from .shared_folder import TASK, Place

__all__ = ["PlatformBackend", "PlatformJob"]

_GATHER = 0.25
_OVER = ("Succeeded", "Failed")
_NOT_BEGUN = 2
"""What `pumice.worker` exits with where it could not begin."""
_NO_PYTHON = (1, 126, 127, 128)
"""What a container without Python, or without this library, exits with."""
_ARCHIVES_KEPT_DAYS = 30
_TOLD_AT_ONCE = 256


class PlatformJob:
    """A job of the platform, followed by two threads until it ends or is closed."""

    def __init__(
        self,
        connection: _core.Connection,
        name: str,
        bundle: str,
        spec: JobSpec,
        *,
        key: str | None,
        chunk: int,
        is_fleet: bool,
        on_change: OnChange,
    ) -> None:
        self._connection = connection
        self._name = name
        self._chunk = chunk
        self._on_change = on_change
        self._options = spec.options
        self._is_fleet = is_fleet
        self._results = _core.BundleResults(bundle, len(spec.records), chunk, key)
        self._lock = threading.Lock()
        self._states = [State.WAITING] * len(spec.records)
        self._attempts = [1] * len(spec.records)
        self._failures: dict[int, Outcome] = {}
        self._cancelled = False
        self._told_discarded = False
        self._pods = connection.watch_pods(name)
        self._job = connection.watch(name)
        self._threads = [threading.Thread(target=follow, daemon=True) for follow in (self._follow_pods, self._follow_job)]
        for thread in self._threads:
            thread.start()

    @property
    def id(self) -> str:
        """`namespace/name`."""
        return f"{self._connection.namespace}/{self._name}"

    def outcomes(self, indexes: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
        """The outcomes of finished records."""
        wanted = set(indexes)
        for index in wanted & self._failures.keys():
            yield index, self._failures[index]
        for shard in sorted({index // self._chunk for index in wanted - self._failures.keys()}):
            for index, _, success, told in self._rows(shard):
                if success and index in wanted:
                    yield index, told

    def cancel(self, indexes: Iterable[int] | None = None, *, running: bool = True) -> frozenset[int]:
        """End the whole job; some records of a job alone can't be ended here, and are left to run."""
        with self._lock:
            left = {index for index, state in enumerate(self._states) if not state.final}
            begun = any(self._states[index] is State.RUNNING for index in left)
            if not left or (indexes is not None and not left <= set(indexes)) or (begun and not running):
                return frozenset()
            self._cancelled = True
        with _refusals():
            self._connection.cancel(self._name, wait=False)
        return frozenset(left)

    def logs(self, index: int, *, tail: int | None = None) -> Iterator[str]:
        """The lines of the record's shard."""
        with _refusals():
            for line in self._connection.logs(self._name, index=index // self._chunk, task=TASK, tail=tail):
                yield line["text"]

    def why(self) -> str | None:
        """Why the job waits."""
        with _refusals():
            return self._connection.why(self._name)["text"] or None

    def close(self) -> None:
        """Watch it no more; what the run has left goes if all is over."""
        self._pods.close()
        self._job.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        if all(state.final for state in self._states):
            # What a function has left in its checkpoint may belong to another user.
            with contextlib.suppress(_core.CoreError):
                self._results.remove()

    def _follow_pods(self) -> None:
        # What can't be watched any more is told by the other thread.
        with contextlib.suppress(_core.CoreError):
            for news in self._pods:
                pods = news["pods"] if news["kind"] == "snapshot" else [news["pod"]] if news["kind"] == "changed" else []
                for pod in pods:
                    self._take_pod(pod, last=not self._runs_again(pod))

    def _follow_job(self) -> None:
        try:
            for happening in self._job:
                if happening["kind"] == "waits":
                    self._tell([Change(0, State.WAITING, self._attempts[0], why=happening["why"]["text"])])
                elif happening["kind"] == "ended":
                    for pod in self._connection.pods(self._name, task=TASK):
                        self._take_pod(pod, last=True)
                    self._finish(happening["job"])
        except _core.CoreError as error:
            self._end_rest(Failure("lost", f"The job can't be watched any more: {error}"))
        finally:
            self._pods.close()

    def _runs_again(self, pod: _core.PodBrief) -> bool:
        """Whether a failed pod may be made again. With more memory each time, only the end of the job tells."""
        if self._is_fleet:
            # Of a pod that runs again it says that it waits.
            return False
        return self._options.on_oom is not None or (pod["attempt"] or 1) <= self._options.retries

    def _take_pod(self, pod: _core.PodBrief, *, last: bool) -> None:
        if pod["index"] is None or pod["task"] != TASK:
            return
        records = self._records(pod["index"])
        if pod["phase"] == "Running":
            attempt = pod["attempt"] or 1
            self._tell(Change(index, State.RUNNING, attempt, node=pod["node"]) for index in records)
        elif pod["phase"] in _OVER:
            if pod["discarded"] and not self._told_discarded:
                self._told_discarded = True
                # A filter may make an error of it, and this thread has nobody to raise it to.
                with contextlib.suppress(RuntimeWarning):
                    warnings.warn(f"Of {self._name}-{TASK}-{pod['index']}: {pod['discarded']}", RuntimeWarning, stacklevel=1)
            if not all(self._states[index].final for index in records):
                self._tell(self._ended(pod, last=last))

    def _records(self, shard: int) -> range:
        return range(shard * self._chunk, min((shard + 1) * self._chunk, len(self._states)))

    def _ended(self, pod: _core.PodBrief, *, last: bool) -> Iterator[Change]:
        """How the records of a pod that is over went."""
        shard, attempt, node = pod["index"] or 0, pod["attempt"] or 1, pod["node"]
        started, finished = _seconds(pod["started"]), _seconds(pod["finished"])
        seconds = finished - started if started is not None and finished is not None else None
        rest = set(self._records(shard))
        failures: dict[int, tuple[int, Outcome]] = {}
        for index, of, success, told in self._rows(shard):
            if success:
                rest.discard(index)
                yield Change(index, State.SUCCEEDED, of, node=node, outcome=told, started=started, seconds=seconds)
            else:
                failures[index] = attempt if isinstance(told, Failure) else of, told
        if not last:
            for index in sorted(rest):
                yield Change(index, State.WAITING, attempt + 1, why="the attempt before failed")
            return
        silent = [index for index in sorted(rest) if failures.get(index, (0, b""))[0] < attempt]
        culprit = next((index for index in silent if index not in failures and self._results.begun(index)), None)
        culprit = silent[0] if culprit is None and silent else culprit
        for index in sorted(rest):
            if self._cancelled:
                yield Change(index, State.CANCELLED, attempt)
                continue
            if index == culprit or (index in silent and pod["exit_code"] == _NOT_BEGUN):
                failure = self._of_pod(pod, index)
            elif index in failures:
                failure = _with_memory(outcome.failure_of(failures[index][1]), pod)
            else:
                failure = Failure("lost", "Its process ended before it began.", attempt=attempt)
            self._failures[index] = failure
            yield Change(index, State.FAILED, failure.attempt, node=node, outcome=failure, started=started, seconds=seconds)

    def _rows(self, shard: int) -> Iterator[tuple[int, int, bool, Outcome]]:
        """What stands in the log of a shard: number, attempt, whether it succeeded, and the outcome.

        In place of what may be somebody else's comes a failure that says so.
        """
        try:
            for index, _, attempt, success, told, unmarked in self._results.shard(shard):
                if unmarked is None or self._options.allow_pickle:
                    yield index, attempt, success, told
                else:
                    yield index, attempt, False, run_key.refusal(*unmarked, attempt)
        except _core.CoreError as error:
            for index in self._records(shard):
                yield index, 1, False, Failure("lost", f"its result can't be read: {error}")

    def _of_pod(self, pod: _core.PodBrief, index: int) -> Failure:
        """The failure of a record which its pod has ended under."""
        try:
            lines = tuple(self.logs(index, tail=LOG_LINES))
        except Refused:
            lines = ()
        message = pod["message"] or "Its process was ended under it."
        if pod["oom"]:
            message = "It needed more memory than it had asked for."
        if pod["exit_code"] == _NOT_BEGUN and lines:
            message = lines[-1].removeprefix("pumice.worker: ")
        elif self._options.image is not None and pod["exit_code"] in _NO_PYTHON:
            version = ".".join(platform.python_version_tuple()[:2])
            message = f"The image {self._options.image} must have Python {version} as python3, with pumice: {message}"
        return Failure(
            "killed",
            message,
            log_lines=lines,
            exit_code=pod["exit_code"],
            signal=pod["signal"],
            oom=pod["oom"],
            node=pod["node"] or None,
            attempt=pod["attempt"] or 1,
        )

    def _finish(self, ending: _core.Ending) -> None:
        reason = ending["message"] or ending["reason"] or "nothing more is known of it"
        left = [index for index, state in enumerate(self._states) if not state.final]
        # Of pods that are gone the log alone tells.
        self._tell(
            Change(index, State.SUCCEEDED if success else State.FAILED, attempt, outcome=told)
            for shard in sorted({index // self._chunk for index in left})
            for index, attempt, success, told in self._rows(shard)
            if success or not self._cancelled
        )
        self._end_rest(Failure("lost", f"The job {ending['end']}: {reason}."))

    def _end_rest(self, failure: Failure) -> None:
        state = State.CANCELLED if self._cancelled else State.FAILED
        left = [index for index, known in enumerate(self._states) if not known.final]
        self._failures |= dict.fromkeys(left, failure)
        outcome = None if self._cancelled else failure
        self._tell(Change(index, state, self._attempts[index], outcome=outcome) for index in left)

    def _tell(self, changes: Iterable[Change]) -> None:
        """Tell what is new, a few at a time, by one call after the other."""
        left = iter(changes)
        while some := list(itertools.islice(left, _TOLD_AT_ONCE)):
            with self._lock:
                new = [change for change in some if self._is_new(change)]
                if new:
                    self._on_change(new)

    def _is_new(self, change: Change) -> bool:
        """Whether a change says something new, which is noted."""
        known, attempt = self._states[change.index], self._attempts[change.index]
        again = known is change.state and change.why is None and change.attempt <= attempt
        back = known is State.RUNNING and change.state is State.WAITING and change.attempt <= attempt
        if known.final or again or back:
            return False
        self._states[change.index] = change.state
        self._attempts[change.index] = max(attempt, change.attempt)
        return True


class PlatformBackend:
    """The platform that `jobctl` would talk to."""

    def __init__(
        self,
        connection: _core.Connection | None = None,
        *,
        context: str | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        try:
            self._connection = connection or _connected(context)
            self._place = Place.of(self._connection.describe(), folder)
        except _core.CoreError as error:
            raise NoBackend(_with_next(error)) from error
        self._jobs: list[PlatformJob] = []
        close_at_exit(self)

    @property
    def name(self) -> str:
        """Under which it is registered."""
        return "platform"

    @property
    def python(self) -> str | None:
        """Pods of this machine run its programs, and so this Python."""
        return platform.python_version() if self._place.here else None

    @property
    def slots(self) -> None:
        """The scheduler's business."""

    @property
    def gather(self) -> float:
        """A job for a few calls costs as much as one for many."""
        return _GATHER

    def submit(self, spec: JobSpec, on_change: OnChange) -> PlatformJob:
        """Pack the bundle and create the job."""
        count, chunk = len(spec.records), self._place.chunk(spec)
        key = None if spec.options.allow_pickle else run_key.fresh()
        node_cache.prune(self._place.archives, _ARCHIVES_KEPT_DAYS)
        try:
            self._place.make()
            modules = spec.environment.modules
            bundle = workstore.pack(
                self._place.bundles,
                spec.function,
                spec.records,
                python=spec.environment.python,
                modules=modules.data if modules is not None else None,
                path=spec.environment.path if spec.options.image is None else (),
            )
            try:
                name = self._connection.submit(self._place.job(spec, bundle, chunk), key)
            except BaseException:
                _core.BundleResults(bundle, count, chunk).remove()
                raise
        except _core.CoreError as error:
            raise Refused(_with_next(error)) from error
        except OSError as error:
            raise Refused(f"The work can't be put into {self._place.folder}: {error}") from error
        is_fleet = self._place.fleet
        job = PlatformJob(self._connection, name, bundle, spec, key=key, chunk=chunk, is_fleet=is_fleet, on_change=on_change)
        self._jobs.append(job)
        return job

    def unfinished(self) -> list[tuple[str, int]]:
        """Nothing ends with the program."""
        return []

    def close(self) -> None:
        """End watching; the jobs run on."""
        for job in self._jobs:
            job.close()


def _connected(context: str | None) -> _core.Connection:
    """The platform of a context, or the one in use; where none is named and none runs, that of this machine is started."""
    if context is not None:
        return _core.Connection.open(context=context)
    started = _core.bring_up(sysconfig.get_path("scripts"))
    if started is not None:
        print(started, file=sys.stderr)  # noqa: T201
    return _core.Connection.open()


def _with_memory(failure: Failure, pod: _core.PodBrief) -> Failure:
    """The failure with what only the pod knows: that its memory ran out."""
    if not pod["oom"] or failure.oom or failure.kind != "killed" or failure.signal != signal.SIGKILL:
        return failure
    return replace(failure, oom=True, message="It needed more memory than it had asked for.")


def _seconds(time: str | None) -> float | None:
    return None if time is None else datetime.fromisoformat(time).timestamp()


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What the platform says no to is an error of this library."""
    try:
        yield
    except _core.CoreError as error:
        raise Refused(_with_next(error)) from error


def _with_next(error: _core.CoreError) -> str:
    return f"{error}. Next: {error.next_command}" if error.next_command else str(error)


register("platform", PlatformBackend)
