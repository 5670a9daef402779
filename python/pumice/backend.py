"""The seam between the library and what runs the work.

A job is one function and many records. A record is one call of the function; `chunk` records make a shard, which
one process (in the platform: one pod) runs. The library makes records and reads outcomes, a back end runs them:
this machine (`pumice.local()`), a script for tests (`pumice.fake()`), the platform (`pumice.platform`).

Outcomes are written by `pumice.outcome` in the process that ran the record and read by the library; to a back end they
are bytes, of which only `pumice.outcome.is_success` is of interest. They are pickles, and run code when the library reads
them: a back end that finds them where others can write must know its own, as the platform does by marks (`pumice.run_key`).
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from .errors import NoBackend

if TYPE_CHECKING:
    from .environment import Environment

__all__ = [
    "Backend",
    "Change",
    "Failure",
    "Job",
    "JobSpec",
    "OnChange",
    "OnOom",
    "Options",
    "Outcome",
    "Record",
    "State",
    "find",
    "register",
]


@dataclass(frozen=True, slots=True)
class OnOom:
    """What a record killed for memory gets on its next try: `factor` times as much, or `step` more, up to `ceiling`."""

    factor: float | None = None
    step: str | None = None
    ceiling: str | None = None
    tries: int = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What a job asks for. Amounts are per shard, as Kubernetes writes them ("500m", "4Gi"); None leaves it to the queue."""

    cpu: str | None = None
    memory: str | None = None
    gpu: int | None = None
    queue: str | None = None
    zone: str | None = None
    priority: str | None = None
    image: str | None = None
    retries: int = 0
    """How often a failed record runs again."""
    on_oom: OnOom | None = None
    min_success: float | int | None = None
    """A share of the records (float, 0 to 1) or a count (int); None: all."""
    max_parallel: int | None = None
    """How many shards run at a time."""
    timeout: float | None = None
    """Seconds that one attempt at a record may take."""
    allow_pickle: bool = False
    """Whether results are read which the run's key, or for kept ones the user's, does not mark."""
    env: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One call: a key that stays the same from run to run, and the pickled `(args, kwargs)`."""

    key: str
    args: bytes


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What is to be run. `records` are numbered by their place; keys are unique in a job."""

    function: bytes
    """The function, by cloudpickle; never above `pumice.pickling.LIMIT`."""
    records: Sequence[Record]
    options: Options
    environment: Environment
    chunk: int | None = None
    """Records a shard; None leaves it to the back end."""
    group: str | None = None
    """Jobs of one group (of one Executor) share `max_parallel` where the back end can."""


class State(enum.Enum):
    """Where a record is. The last three are final."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing comes after it."""
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record has no value, as far as the back end knows it."""

    kind: Literal["error", "killed", "timeout", "lost", "unmarked"]
    """`error`: the function raised; `killed`: its process ended under it; `lost`: nothing is known of it any more;
    `unmarked`: its result may be somebody else's, and wasn't read."""
    message: str
    """One sentence for people."""
    traceback: str | None = field(default=None, repr=False)
    """The remote traceback as text."""
    exception: bytes | None = field(default=None, repr=False)
    """The pickled exception, where it could be pickled."""
    log_lines: tuple[str, ...] = field(default=(), repr=False)
    """The last lines the record wrote, at most 50."""
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    node: str | None = None
    why: str | None = None
    """What the platform says to "why?", as text."""
    attempt: int = 1


Outcome: TypeAlias = bytes | Failure
"""What the process that ran a record wrote (`pumice.outcome`), or, if it wrote nothing, what the back end knows."""


@dataclass(frozen=True, slots=True)
class Change:
    """A record has come to a new state, or a waiting one has a new reason for waiting."""

    index: int
    state: State
    attempt: int = 1
    node: str | None = None
    why: str | None = None
    """Why it waits, as text."""
    outcome: Outcome | None = None
    """With SUCCEEDED and FAILED, where it is at hand; without it the library asks `Job.outcomes`."""
    started: float | None = None
    """Seconds since 1970 at which the attempt began; with a final state."""
    seconds: float | None = None
    """How long the attempt ran; with a final state."""
    max_rss: int | None = None
    """The most memory the process of the attempt had, in bytes; with a final state, where it is known."""


OnChange: TypeAlias = Callable[[Sequence[Change]], None]
"""Told of changes in batches, from any thread, one call at a time per job; must be quick and doesn't raise."""


class Job(Protocol):
    """A submitted job. All methods may be called from any thread."""

    @property
    def id(self) -> str:
        """What people call it, `namespace/name` on the platform."""

    def outcomes(self, indexes: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
        """The outcomes of finished records, as they can be had."""

    def cancel(self, indexes: Iterable[int] | None = None, *, running: bool = True) -> frozenset[int]:
        """End records (None: all) which are not over; `running=False` spares those that have begun.

        Returns those known never to begin, or to have been told to stop, from here on. CANCELLED is told for each of them
        through `OnChange`, unless it ended by itself just before.
        """

    def logs(self, index: int, *, tail: int | None = None) -> Iterator[str]:
        """The lines a record has written up to now, the last `tail` of them or all that are kept."""

    def why(self) -> str | None:
        """Why the job waits, as text; None where there is nothing to say."""

    def close(self) -> None:
        """Nobody waits for this job any more: end watching it. The job runs on; `logs` and `why` still answer.

        Not called from `OnChange`. May be called again.
        """


class Backend(Protocol):
    """What runs jobs."""

    @property
    def name(self) -> str:
        """Under which it was registered."""

    @property
    def python(self) -> str | None:
        """Version of the Python its workers run ("3.11"), if it is known before start; compared with the client's."""

    @property
    def slots(self) -> int | None:
        """How many records may run at a time, where that is known (joblib's `n_jobs=-1`)."""

    @property
    def gather(self) -> float:
        """Seconds for which an Executor gathers calls before it submits them as one job; 0: each call at once."""

    def submit(self, spec: JobSpec, on_change: OnChange) -> Job:
        """Start a job. `on_change` is told of every record until each has come to a final state.

        It may be called before `submit` returns. Raises `pumice.PumiceError` where the job is refused.
        """

    def close(self) -> None:
        """Let go of processes, connections and threads. Jobs on a platform run on; local ones are cancelled."""


_factories: dict[str, Callable[[], Backend]] = {}
_PROVIDED = {"local": "pumice.machine", "fake": "pumice.fake_backend", "platform": "pumice.platform"}


def register(name: str, factory: Callable[[], Backend]) -> None:
    """Make a back end known by name, for `pumice.use(name)` and `PUMICE_BACKEND`. A later one replaces an earlier one."""
    _factories[name] = factory


def find(name: str) -> Backend:
    """Make the back end of that name. The provided ones register when their module is imported, which this does."""
    if name not in _factories and name in _PROVIDED:
        try:
            importlib.import_module(_PROVIDED[name])
        except ModuleNotFoundError as error:
            raise NoBackend(f"The back end {name!r} needs {error.name}, which is not installed here.") from error
    if name not in _factories:
        known = ", ".join(sorted({*_factories, *_PROVIDED}))
        raise NoBackend(f"There is no back end {name!r}; there are: {known}.")
    return _factories[name]()
