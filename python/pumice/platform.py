"""The back end of the platform: each shard a pod of one job. Today for the `pumice up` of this machine.

The work lies in a folder which the pods see too (`pumice.workstore.FolderStore`); `pumice.worker` runs it there. How
records went is read from the folder when their pod ends; where the pod ended under them, the pod says how.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from . import _core
from .backend import Change, Failure, JobSpec, OnChange, OnOom, Options, Outcome, State, register
from .calls import LOG_LINES
from .errors import BadOption, NoBackend, Refused
from .exiting import close_at_exit
from .node_cache import cache_folder
from .workstore import FolderStore

__all__ = ["PlatformBackend", "PlatformJob"]

_TASK = "main"
_VOLUME = "work"
_PODS_PER_CPU = 4
_GATHER = 0.25
_STEM = 30
_OVER = ("Succeeded", "Failed")


class PlatformJob:
    """A job of the platform, followed by two threads until it ends or is closed."""

    def __init__(
        self, connection: _core.Connection, name: str, folder: Path, spec: JobSpec, *, chunk: int, on_change: OnChange
    ) -> None:
        self._connection = connection
        self._name = name
        self._folder = folder
        self._chunk = chunk
        self._on_change = on_change
        self._store = FolderStore(folder, 0, chunk)
        self._lock = threading.Lock()
        self._states = [State.WAITING] * len(spec.records)
        # A pod that is made again with more memory may fail before it succeeds; only the end of the job tells.
        self._again = spec.options.on_oom is not None
        self._failures: dict[int, Outcome] = {}
        self._cancelled = False
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
        for index in indexes:
            found = self._store.outcome(index) or self._failures.get(index)
            if found is not None:
                yield index, found

    def cancel(self, indexes: Iterable[int] | None = None, *, running: bool = True) -> frozenset[int]:
        """End the whole job; some records of a job alone can't be ended here, and are left to run."""
        with self._lock:
            left = {index for index, state in enumerate(self._states) if not state.final}
            begun = any(self._states[index] is State.RUNNING for index in left)
            if not left or (indexes is not None and not left <= set(indexes)) or (begun and not running):
                return frozenset()
            self._cancelled = True
        self._connection.cancel(self._name, wait=False)
        return frozenset(left)

    def logs(self, index: int, *, tail: int | None = None) -> Iterator[str]:
        """The lines of the record's shard."""
        for line in self._connection.logs(self._name, index=index // self._chunk, task=_TASK, tail=tail):
            yield line["text"]

    def why(self) -> str | None:
        """Why the job waits."""
        return self._connection.why(self._name)["text"] or None

    def close(self) -> None:
        """Watch it no more; the folder goes if all is over."""
        self._pods.close()
        self._job.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        if all(state.final for state in self._states):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _follow_pods(self) -> None:
        # What can't be watched any more is told by the other thread.
        with contextlib.suppress(_core.CoreError):
            for news in self._pods:
                pods = news["pods"] if news["kind"] == "snapshot" else [news["pod"]] if news["kind"] == "changed" else []
                for pod in pods:
                    if not (self._again and pod["phase"] == "Failed"):
                        self._take_pod(pod)

    def _follow_job(self) -> None:
        try:
            for happening in self._job:
                if happening["kind"] == "waits":
                    self._tell([Change(0, State.WAITING, why=happening["why"]["text"])])
                elif happening["kind"] == "ended":
                    for pod in self._connection.pods(self._name, task=_TASK):
                        self._take_pod(pod)
                    self._finish(happening["job"])
        except _core.CoreError as error:
            self._end_rest(Failure("lost", f"The job can't be watched any more: {error}"))
        finally:
            self._pods.close()

    def _take_pod(self, pod: _core.PodBrief) -> None:
        if pod["index"] is None or pod["task"] != _TASK:
            return
        first = pod["index"] * self._chunk
        records = range(first, min(first + self._chunk, len(self._states)))
        if pod["phase"] == "Running":
            self._tell([Change(index, State.RUNNING, node=pod["node"]) for index in records])
        elif pod["phase"] in _OVER:
            self._tell(list(self._ended(pod, records)))

    def _ended(self, pod: _core.PodBrief, records: range) -> Iterator[Change]:
        """How the records of a pod that is over went. What the pod ended under is the first without an outcome."""
        culprit = True
        started = _seconds(pod["started"])
        finished = _seconds(pod["finished"])
        seconds = finished - started if started is not None and finished is not None else None
        for index in records:
            if self._states[index].final:
                continue
            if self._store.done(index):
                yield Change(index, State.SUCCEEDED, node=pod["node"], started=started, seconds=seconds)
                continue
            if self._cancelled:
                yield Change(index, State.CANCELLED)
                continue
            told: Outcome | None = self._store.failure(index)
            if told is None:
                told = self._of_pod(pod, index) if culprit else Failure("lost", "Its process ended before it began.")
                culprit = False
            self._failures[index] = told
            yield Change(index, State.FAILED, node=pod["node"], outcome=told, started=started, seconds=seconds)

    def _of_pod(self, pod: _core.PodBrief, index: int) -> Failure:
        try:
            lines = tuple(self.logs(index, tail=LOG_LINES))
        except _core.CoreError:
            lines = ()
        message = "It needed more memory than it had asked for." if pod["oom"] else "Its process was ended under it."
        return Failure(
            "killed",
            pod["message"] or message,
            log_lines=lines,
            exit_code=pod["exit_code"],
            signal=pod["signal"],
            oom=pod["oom"],
            node=pod["node"] or None,
        )

    def _finish(self, ending: _core.Ending) -> None:
        reason = ending["message"] or ending["reason"] or "nothing more is known of it"
        self._end_rest(Failure("lost", f"The job {ending['end']}: {reason}."))

    def _end_rest(self, failure: Failure) -> None:
        state = State.CANCELLED if self._cancelled else State.FAILED
        left = [index for index, known in enumerate(self._states) if not known.final]
        self._failures |= dict.fromkeys(left, failure)
        self._tell([Change(index, state, outcome=None if self._cancelled else failure) for index in left])

    def _tell(self, changes: Sequence[Change]) -> None:
        """Tell what is new, one call at a time."""
        with self._lock:
            new = []
            for change in changes:
                known = self._states[change.index]
                again = known is change.state and change.why is None
                if known.final or again or (known is State.RUNNING and change.state is State.WAITING):
                    continue
                self._states[change.index] = change.state
                new.append(change)
            if new:
                self._on_change(new)


class PlatformBackend:
    """The platform that `jobctl` would talk to."""

    def __init__(self, connection: _core.Connection | None = None) -> None:
        try:
            self._connection = connection or _connected()
        except _core.CoreError as error:
            raise NoBackend(_with_next(error)) from error
        if not self._connection.describe()["local"]:
            raise NoBackend("The library runs on the `pumice up` of this machine; other platforms can't see its folder yet.")
        self._jobs: list[PlatformJob] = []
        close_at_exit(self)

    @property
    def name(self) -> str:
        """Under which it is registered."""
        return "platform"

    @property
    def python(self) -> str:
        """Pods run the programs of this machine, and so this Python."""
        return platform.python_version()

    @property
    def slots(self) -> None:
        """The scheduler's business."""

    @property
    def gather(self) -> float:
        """A job for a few calls costs as much as one for many."""
        return _GATHER

    def submit(self, spec: JobSpec, on_change: OnChange) -> PlatformJob:
        """Lay out the folder and create the job."""
        count = len(spec.records)
        pods = min(count, _PODS_PER_CPU * (os.cpu_count() or 1))
        chunk = spec.chunk or -(-count // max(pods, 1))
        cache = cache_folder() / "work"
        cache.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=cache))
        try:
            modules = spec.environment.modules
            FolderStore.create(
                folder,
                spec.function,
                spec.records,
                python=spec.environment.python,
                modules=modules.data if modules is not None else None,
            )
            name = self._connection.submit(_rendered(spec, folder, chunk, -(-count // chunk)))
        except _core.CoreError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise Refused(_with_next(error)) from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        job = PlatformJob(self._connection, name, folder, spec, chunk=chunk, on_change=on_change)
        self._jobs.append(job)
        return job

    def close(self) -> None:
        """End watching; the jobs run on."""
        for job in self._jobs:
            job.close()


def _connected() -> _core.Connection:
    """The platform in use; where none is named and none runs, that of this machine is started."""
    started = _core.bring_up(sysconfig.get_path("scripts"))
    if started is not None:
        print(started, file=sys.stderr)  # noqa: T201
    return _core.Connection.open()


def _rendered(spec: JobSpec, folder: Path, chunk: int, pods: int) -> dict[str, Any]:
    options = spec.options
    _check(options)
    library = str(Path(__file__).parents[1])
    env = {
        **options.env,
        "PYTHONPATH": library,
        # What a process wrote before it was killed is wanted most.
        "PYTHONUNBUFFERED": "1",
        "PUMICE_WORK_FOLDER": str(folder),
        "PUMICE_WORK_CHUNK": str(chunk),
    }
    job = _core.render(
        [sys.executable, "-m", "pumice.worker"],
        replicas=pods,
        cpu=options.cpu,
        memory=options.memory,
        queue=options.queue,
        priority_class=options.priority,
        env=env,
        workdir=str(Path.cwd()),
        share_workdir=True,
        min_available=1,
        # Said also where all may run at once: such pods don't need to know each other, so there may be very many.
        max_parallel=min(options.max_parallel or pods, pods),
        gpu=options.gpu,
        zone=options.zone,
    )
    # A map runs many times under one name, so the name is only the beginning of the job's.
    job["metadata"]["generateName"] = _beginning(options.name or "map")
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    pod.setdefault("volumes", []).append({"name": _VOLUME, "hostPath": {"path": str(folder), "type": "Directory"}})
    pod["containers"][0].setdefault("volumeMounts", []).append({"name": _VOLUME, "mountPath": str(folder)})
    if options.on_oom is not None:
        job["metadata"].setdefault("annotations", {})["pumice.sh/on-oom"] = _on_oom(options.on_oom)
    return job


def _beginning(name: str) -> str:
    stem = re.sub("[^a-z0-9]+", "-", name.lower())[:_STEM].strip("-")
    return f"{stem if stem[:1].isalpha() else f'map-{stem}'.rstrip('-')}-"


def _check(options: Options) -> None:
    """Refuse what would not be done."""
    unknown = ("image", "timeout")
    asked = [name for name in unknown if getattr(options, name) is not None] + (["retries"] if options.retries else [])
    if asked:
        raise BadOption(f"On the platform {', '.join(asked)} can't be asked for yet; leave it out, or use pumice.local().")


def _on_oom(rule: OnOom) -> str:
    parts = {"factor": rule.factor, "step": rule.step, "ceiling": rule.ceiling, "tries": rule.tries}
    return ",".join(f"{name}={value}" for name, value in parts.items() if value is not None)


def _seconds(time: str | None) -> float | None:
    return None if time is None else datetime.fromisoformat(time).timestamp()


def _with_next(error: _core.CoreError) -> str:
    return f"{error}. Next: {error.next_command}" if error.next_command else str(error)


register("platform", PlatformBackend)
