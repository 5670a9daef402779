"""The compiled part: the job library of `jobctl`. Typed dictionaries in and out; the package makes objects of them.

Every call that asks the platform something frees the interpreter and ends at once with KeyboardInterrupt on Ctrl-C,
which leaves the job as it is. Jobs are named as for `jobctl`: a name, "job/NAME", or "last".

Forks: a child process may use a Connection it inherited, which opens itself anew there. A Stream belongs to the process
that opened it.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, Literal, NotRequired, Self, TypeAlias, TypedDict, TypeVar, final

_Message = TypeVar("_Message")

__version__: str

class CoreError(Exception):
    """What `jobctl` would have ended with."""

    exit_code: int
    """The exit code of `jobctl` for it."""
    next_command: str | None
    """What to do next, a command where there is one."""

class UsageError(CoreError):
    """What was asked for is wrong in itself (2)."""

class NotFoundError(CoreError):
    """No such job, pod or queue (3)."""

class DeniedError(CoreError):
    """Not allowed (4)."""

class UnreachableError(CoreError):
    """No answer; trying again makes sense (5)."""

class ConflictError(CoreError):
    """It exists already, or changed meanwhile (6)."""

class TimedOutError(CoreError):
    """The job has not ended in the time given (8)."""

class Description(TypedDict):
    url: str
    namespace: str
    local: bool
    """Whether it is a `pumice up` of this machine: the user's own, or the one that users of the machine share."""
    data_dir: str | None
    kubeconfig: str | None
    context: str | None
    fleet: bool
    """Whether it is a fleet: jobs are job sets there, and their pods are in its clusters."""

class JobBrief(TypedDict):
    name: str
    namespace: str
    uid: str
    """Another job of the same name has another."""
    queue: str
    phase: str
    """As Volcano writes it, such as "Running"; "New" before the controller has seen the job."""
    reason: str
    message: str
    end: str | None
    """How it ended: "completed", "failed", "terminated" or "suspended"; None while it goes on."""
    exit_code: int | None
    """The exit code that says how it ended."""
    total: int
    succeeded: int
    failed: int
    running: int
    waiting: int
    restarts: int
    created: str | None
    """RFC 3339, as all times here."""

class PodFailure(TypedDict):
    pod: str
    container: str
    exit_code: int
    signal: int | None
    reason: str
    """A word such as "OOMKilled"."""
    message: str

class Ending(JobBrief):
    failures: list[PodFailure]
    """First one first."""

class PodBrief(TypedDict):
    name: str
    uid: str
    """A pod made again has the same name and another uid."""
    task: str
    index: int | None
    attempt: int | None
    """Which run of its index it is, from 1."""
    phase: str
    reason: str
    message: str
    exit_code: int | None
    signal: int | None
    oom: bool
    node: str
    started: str | None
    finished: str | None
    discarded: str
    """What it wrote that is gone with it, in a sentence; may be empty."""

class Expected(TypedDict):
    at: str
    """Half of those like it started by then."""
    early: str
    late: str
    """One of ten came before `early`, one of ten after `late`."""
    promised: bool

class InLine(TypedDict):
    queue: str
    ahead: int
    waiting: int
    about: NotRequired[bool]
    """The numbers are rough."""
    behind: NotRequired[list[str]]
    """The first of those ahead, `namespace/name`."""

class Holder(TypedDict):
    job: str
    queue: str
    amount: int
    pods: int
    freeInMs: NotRequired[int]

class Held(TypedDict):
    resource: str
    of: int
    queue: NotRequired[str]
    by: list[Holder]
    others: int
    othersAmount: int

class Could(TypedDict):
    """A change that would let the job start now; the fields depend on which."""

    change: str
    """request, fewer, queue, limit, toleration, withoutSelector or withoutAffinity."""
    text: str
    resource: NotRequired[str]
    amount: NotRequired[int]
    requested: NotRequired[int]
    role: NotRequired[str]
    minAvailable: NotRequired[int]
    of: NotRequired[int]
    queue: NotRequired[str]
    limitMs: NotRequired[int]
    key: NotRequired[str]
    value: NotRequired[str]

class Receipt(TypedDict):
    """A pod that had to leave for another job."""

    pod: str
    node: str
    victim: str
    beneficiary: str
    action: str
    rule: str
    at: str
    agoMs: int
    room: str
    """open, used, gone, notFreed or refused."""
    text: str

class RoomOn(TypedDict):
    node: str
    pods: int

class Why(TypedDict):
    stage: str
    reasons: list[dict[str, Any]]
    text: str
    group: NotRequired[str]
    queue: NotRequired[str]
    since: NotRequired[str]
    minimum: NotRequired[dict[str, Any]]
    approximate: NotRequired[bool]
    expected: NotRequired[Expected | None]
    line: NotRequired[InLine | None]
    held: NotRequired[list[Held]]
    roomOn: NotRequired[list[RoomOn]]
    could: NotRequired[list[Could]]
    evictions: NotRequired[list[Receipt]]
    startsNext: NotRequired[bool]
    fitsEmpty: NotRequired[bool | None]
    bounded: NotRequired[bool]
    """Not all that might help was tried."""

class Standing(TypedDict):
    """How a queue or a node stands."""

    status: dict[str, Any]
    text: str

class Event(TypedDict):
    at: str | None
    kind: str
    """Normal or Warning."""
    reason: str
    message: str
    count: int

class Cancelled(TypedDict):
    end: str | None
    """How the job ended; None if nobody waited for it."""
    already_ended: bool

class Line(TypedDict):
    kind: Literal["line"]
    pod: str
    task: str | None
    index: int | None
    container: str
    text: str
    """Without the line's end; what is no UTF-8 is replaced."""

class State(TypedDict):
    kind: Literal["state"]
    job: JobBrief

class Waits(TypedDict):
    """The job waits, for a reason not told before."""

    kind: Literal["waits"]
    why: Why

class LogsLost(TypedDict):
    """The log of one pod can't be read on; the others and the job go on."""

    kind: Literal["logs_lost"]
    detail: str

class Lost(TypedDict):
    """The server does not answer; it is tried again, and nothing will be missed."""

    kind: Literal["lost"]
    detail: str

class Back(TypedDict):
    """The server answers again."""

    kind: Literal["back"]

class Ended(TypedDict):
    """The last message."""

    kind: Literal["ended"]
    job: Ending

Happening: TypeAlias = State | Waits | Line | LogsLost | Lost | Back | Ended

class Snapshot(TypedDict):
    """All pods; those known before and not here are gone."""

    kind: Literal["snapshot"]
    pods: list[PodBrief]

class Changed(TypedDict):
    """A new or changed pod, or the last state of one that is gone."""

    kind: Literal["changed", "gone"]
    pod: PodBrief

PodNews: TypeAlias = Snapshot | Changed | Lost | Back

@final
class Stream(Generic[_Message]):
    """Messages as they come, each given once. Threads that read the same stream take turns."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _Message: ...
    def poll(self, timeout: float) -> _Message | None:
        """The next message, or None if none comes within `timeout` seconds; look at `ended` then."""

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more."""

    def close(self) -> None:
        """End it; whoever waits for a message is told the end."""

@final
class Connection:
    """One platform. May be used by any number of threads."""

    @staticmethod
    def open(
        context: str | None = None,
        kubeconfig: str | PathLike[str] | None = None,
        data_dir: str | PathLike[str] | None = None,
        namespace: str | None = None,
    ) -> Connection:
        """Find the platform as `jobctl` does: by these, else by $PUMICE_CONTEXT, else the running `pumice up`."""

    @property
    def namespace(self) -> str: ...
    def describe(self) -> Description: ...
    def submit(self, job: Mapping[str, Any] | str, run_key: str | None = None) -> str:
        """Create a Job, given as a dictionary or as YAML (there with what it needs beside it); its name.

        Pods with a bundle get `run_key`, which marks their results, out of a Secret of the job; in a fleet by their specs.

        After Ctrl-C or UnreachableError it may or may not be there.
        """

    def get(self, job: str) -> dict[str, Any]:
        """The Job as the server has it."""

    def status(self, job: str) -> JobBrief: ...
    def jobs(self, all_namespaces: bool = False, selector: str | None = None) -> list[JobBrief]:
        """Jobs, oldest first in each namespace; `selector` is one of labels, such as "team=a,stage!=test"."""

    def wait(self, job: str, timeout: float | None = None) -> Ending:
        """Until the job ends, through restarts of the server; TimedOutError after `timeout` seconds."""

    def cancel(self, job: str, wait: bool = True) -> Cancelled: ...
    def why(self, job: str) -> Why:
        """Why the job is where it is."""

    def why_queue(self, queue: str) -> Standing:
        """What the queue holds, deserves and waits for; it takes a right in the whole cluster."""

    def why_node(self, node: str) -> Standing:
        """What is free on the node, for whom it is kept, and who holds the rest."""

    def history(
        self,
        name: str | None,
        user: str | None,
        queue: str | None,
        node: str | None,
        states: list[str],
        since: str | None,
        until: str | None,
        all_namespaces: bool,
        limit: int,
    ) -> list[dict[str, Any]]:
        """Jobs that were and are, the last submitted first; see `pumice.history`."""

    def history_sums(
        self,
        by: str,
        name: str | None,
        user: str | None,
        queue: str | None,
        node: str | None,
        states: list[str],
        since: str | None,
        until: str | None,
        all_namespaces: bool,
    ) -> list[dict[str, Any]]:
        """Sums over them; see `pumice.history_sums`."""

    def history_of(self, name: str, uid: str | None = None) -> dict[str, Any]:
        """Everything of one job."""

    def events(self, job: str, pod: str | None = None) -> list[Event]:
        """What the platform wrote down about the job, or about one of its pods, oldest first."""

    def pods(self, job: str, task: str | None = None, index: int | None = None, failed: bool = False) -> list[PodBrief]:
        """The job's pods now, by task and index."""

    def watch(self, job: str, logs: bool = False) -> Stream[Happening]:
        """All that happens to the job up to its end, with what it writes if `logs`."""

    def watch_pods(
        self, job: str, task: str | None = None, index: int | None = None, failed: bool = False
    ) -> Stream[PodNews]:
        """The job's pods, then every change of them. Never ends by itself."""

    def logs(
        self,
        job: str,
        index: int | None = None,
        task: str | None = None,
        container: str | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Stream[Line]:
        """Lines of the job's pods, or of the one of `index`; with `follow` until the job ends, else what there is."""

def bring_up(beside: str | PathLike[str] | None = None) -> str | None:
    """Start the platform of this machine, as `jobctl run` does, if no other is named and it doesn't run.

    The program `pumice` is looked for in the folder `beside`, then on the PATH. Gives the line that says what was started.
    """

def write_bundle(folder: str | PathLike[str], attachments: Mapping[str, bytes], records: Iterable[tuple[str, bytes]]) -> str:
    """Pack a job into a folder of bundles, which is made, under a fresh run; what its workers find it by.

    The path is absolute. Records are keys and contents, taken a few at a time; they are numbered from 0.
    """

@final
class BundleSlice:
    """The records of one shard, and the log of their results, in a worker."""

    def __init__(self, bundle: str, shard: int, chunk: int, attempt: int, key: str | None = None) -> None:
        """`key` marks what is recorded; what it does not mark counts as not recorded."""

    @property
    def total(self) -> int:
        """How many records the job has."""

    @property
    def attempt(self) -> int: ...
    def attachment(self, name: str) -> bytes | None: ...
    def left(self) -> list[int]:
        """Numbers of the records that have not succeeded yet, in the order in which to run them: failed ones last."""

    def record(self, number: int) -> tuple[str, bytes]:
        """Key and content."""

    def make_checkpoint(self, number: int) -> str:
        """The folder that the record keeps over its attempts."""

    def write(self, results: Sequence[tuple[int, str, bool, bytes]]) -> list[int]:
        """Record results (number, key, success, content), durably; the numbers of those that stand now.

        A success stands once: what an earlier attempt has done is not in the answer.
        """

@final
class BundleResults:
    """The results of one run of `total` records, `chunk` a shard."""

    def __init__(self, bundle: str, total: int, chunk: int, key: str | None = None) -> None: ...
    def shard(self, shard: int) -> BundleRows:
        """What stands in the log of a shard: successes, and last failures."""

    def begun(self, number: int) -> bool:
        """Whether a record was begun, and has not succeeded."""

    def remove(self) -> None:
        """Remove what the run has left; chunks, which others may share, stay."""

@final
class BundleRows:
    """Number, key, attempt, whether it succeeded, and content of each record of which something was told.

    At last where a result is from that the run's key does not mark: its file, and what is wrong with its mark.
    """

    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[int, str, int, bool, bytes, tuple[str, Literal["missing", "wrong", "unchecked"]] | None]: ...

def days(first: str, last: str, calendar: str = "weekdays") -> list[str]:
    """The days from `first` to `last`, both included, that count by a calendar: "all", "weekdays" or "XNYS"."""

def link_notes(folder: str) -> list[str]:
    """What `jobctl` says of the links of a folder that pods are to work in, a sentence each."""

def render(
    command: Sequence[str],
    *,
    name: str | None = None,
    replicas: int | None = None,
    cpu: str | None = None,
    memory: str | None = None,
    queue: str | None = None,
    image: str | None = None,
    env: Mapping[str, str] = ...,
    workdir: str | None = None,
    share_workdir: bool = False,
    min_available: int | None = None,
    max_parallel: int | None = None,
    max_retry: int | None = None,
    retries: int | None = None,
    gpu: int | None = None,
    zone: str | None = None,
    priority_class: str | None = None,
) -> dict[str, Any]:
    """A Job for `command`, as `jobctl submit` would make it, for `Connection.submit`."""
