"""Clusters that come and go under thousands of jobs; run by `tests/demo/fleet`, which says how."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import grpc
from armada_client.client import ArmadaClient
from armada_client.event import Event

from fleet import Cluster, Fleet, Program, is_end, job, pod, read, remains

JOBS = int(os.environ.get("PUMICE_DEMO_JOBS", "20000"))
QUEUES = [f"team-{n}" for n in range(10)]
JOB_SET = "demo"
NODES = 100
LASTS = "3s"
BATCH = 500
SENDERS = 5
# Seconds in which some job has to end.
STANDSTILL = 90.0

ABOUT = f"""\
This demo runs a fleet's server and three clusters of {NODES} simulated nodes, each in processes of its own.
Armada's Python client, as the registry has it, sends {JOBS:,} jobs of one core and {LASTS} to {len(QUEUES)} queues and
watches their events. On the way one cluster is killed with kill -9, a fourth one joins, and the killed one comes
back. In the end every job must have ended exactly once: all events are read again from the start and counted."""


BEGAN = time.monotonic()


def say(text: str) -> None:
    """The next step."""
    print(f"\n\033[1m== {time.monotonic() - BEGAN:.0f} s: {text}\033[0m", flush=True)


def tell(text: str) -> None:
    """What comes of it."""
    print(text, flush=True)


class Board:
    """What the event streams have said so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._where: dict[str, str] = {}
        self._lags: list[float] = []
        self.ended = 0
        self.last_end = 0.0
        self.starts: Counter[str] = Counter()
        self.broken: Exception | None = None

    def watch(self, client: ArmadaClient, queue: str) -> None:
        """Follows a queue's job set for good, in a thread of its own."""
        threading.Thread(target=self._follow, args=(client, queue), daemon=True).start()

    def _follow(self, client: ArmadaClient, queue: str) -> None:
        try:
            for message in client.get_job_events_stream(queue, JOB_SET):
                self._take(client.unmarshal_event_response(message))
        except grpc.RpcError as error:
            self.broken = error

    def _take(self, event: Event) -> None:
        kind, message, now = event.type.value, event.message, time.time()
        with self._lock:
            self._lags.append(now - message.created.ToMilliseconds() / 1000)
            if kind == "leased":
                self._where[message.job_id] = message.cluster_id
            elif kind == "running":
                self.starts[message.cluster_id] += 1
            elif kind in ("lease_returned", "lease_expired"):
                self._where.pop(message.job_id, None)
            elif is_end(event):
                self._where.pop(message.job_id, None)
                self.ended += 1
                self.last_end = now

    def held(self, cluster: str) -> int:
        """How many jobs a cluster has that have not ended."""
        with self._lock:
            return sum(at == cluster for at in self._where.values())

    def waiting(self) -> int:
        """How many jobs no cluster has yet."""
        with self._lock:
            return JOBS - self.ended - len(self._where)

    def lag(self) -> str:
        """How long after their time events were here."""
        with self._lock:
            steps = statistics.quantiles(self._lags, n=100)
            return f"{len(self._lags):,} events, half of them within {steps[49]:.2f} s, 99 of 100 within {steps[98]:.2f} s"


class Demo:
    """The fleet, its clusters, and what happens to them."""

    def __init__(self, directory: Path) -> None:
        self.fleet = Fleet(directory / "server")
        self.directory = directory
        self.clusters: list[Cluster] = []
        self.board = Board()
        self.submitted: dict[str, list[str]] = {queue: [] for queue in QUEUES}
        self.began = 0.0

    def run(self) -> None:
        """All of it."""
        say("A server and three clusters")
        self.fleet.start()
        tell(f"the server is at {self.fleet.address}, process {self.fleet.program.pid}")
        ash, _, _ = (self._join(name) for name in ("ash", "birch", "cedar"))
        say(f"{JOBS:,} jobs")
        sending = ThreadPoolExecutor(1).submit(self._send)
        self._until(sending, lambda: self.board.ended >= JOBS // 5)
        self._lose(ash)
        say("A fourth cluster joins")
        dogwood = self._join("dogwood")
        self._until(sending, lambda: self.board.starts[dogwood.name] > 0 or not self.board.waiting())
        tell(f"{dogwood.name} runs its first jobs" if self.board.starts[dogwood.name] else "no job waits for it")
        # What the dead cluster holds waits for it.
        self._until(sending, lambda: self.board.ended >= min(JOBS * 3 // 5, JOBS - self.board.held(ash.name)))
        say(f"{ash.name} comes back, on its directory")
        ash.start()
        tell(f"{self.board.ended:,} jobs have ended, and {self.board.held(ash.name):,} wait for it")
        self._until(sending, lambda: self.board.ended >= JOBS)
        self._account()

    def _join(self, name: str) -> Cluster:
        cluster = Cluster(self.fleet, self.directory / name, name, NODES)
        self.clusters.append(cluster)
        cluster.start()
        tell(f"cluster {name} is there: process {cluster.up.pid}, its executor {cluster.executor.pid}")
        return cluster

    def _lose(self, cluster: Cluster) -> None:
        say(f"kill -9: {cluster.name} and its executor")
        pids = f"{cluster.up.pid} and {cluster.executor.pid}"
        cluster.crash()
        held = self.board.held(cluster.name)
        tell(f"processes {pids} are dead with {held:,} jobs; {self.board.ended:,} of {JOBS:,} jobs had ended")

    def _send(self) -> None:
        client = self.fleet.administrator.client(self.fleet.address)
        asked = [client.create_queue_request(name=queue, priority_factor=1.0) for queue in QUEUES]
        failed = client.create_queues(asked).failed_queues
        assert not failed, failed
        self.began = time.time()
        with ThreadPoolExecutor(SENDERS) as pool:
            list(pool.map(self._send_to, QUEUES, range(len(QUEUES))))
        took = time.time() - self.began
        tell(f"all jobs are sent, in {took:.1f} s: {JOBS / took:,.0f} a second")

    def _send_to(self, queue: str, number: int) -> None:
        client = self.fleet.administrator.client(self.fleet.address)
        item = job(pod(cpu="1", memory="1Gi"), lasts=LASTS)
        ids, count = self.submitted[queue], len(range(number, JOBS, len(QUEUES)))
        while len(ids) < count:
            answer = client.submit_jobs(queue, JOB_SET, [item] * min(BATCH, count - len(ids)))
            if not ids:
                self.board.watch(client, queue)
            ids.extend(answered.job_id for answered in answer.job_response_items)

    def _until(self, sending: Future[None], look: Callable[[], bool]) -> None:
        """Waits for it. Fails when the fleet stands still, or something broke."""
        ended, moved = -1, 0.0
        while not look():
            if sending.done():
                sending.result()
            assert self.board.broken is None, f"an event stream broke: {self.board.broken}"
            for program in self.programs():
                assert program.ended() is None, f"{program} ended with {program.ended()} and said:\n{program.tail()}"
            now = time.monotonic()
            if self.board.ended != ended:
                ended, moved = self.board.ended, now
            assert now - moved < STANDSTILL, f"for {STANDSTILL:.0f} s no job has ended: {ended} of {JOBS} have"
            time.sleep(0.1)

    def programs(self) -> list[Program]:
        """All that are started."""
        return [self.fleet.program, *(program for cluster in self.clusters for program in (cluster.up, cluster.executor))]

    def _account(self) -> None:
        took = self.board.last_end - self.began
        say("Every job set's events, from the start")
        client = self.fleet.administrator.client(self.fleet.address)
        wrong: list[str] = []
        at: Counter[str] = Counter()
        again = 0
        for queue, submitted in self.submitted.items():
            if not submitted:
                continue
            events = read(client, queue, JOB_SET)
            ends = Counter(event.message.job_id for event in events if is_end(event))
            leases = Counter(event.message.job_id for event in events if event.type.value == "leased")
            well = [event.message for event in events if event.type.value == "succeeded"]
            at.update(message.cluster_id for message in well)
            again += sum(count > 1 for count in leases.values())
            wrong.extend(f"{job_id} of {queue} ended {ends[job_id]} times" for job_id in submitted if ends[job_id] != 1)
            wrong.extend(f"{job_id} of {queue} was never submitted" for job_id in ends.keys() - set(submitted))
            wrong.extend(f"{job_id} of {queue} failed" for job_id in ends.keys() - {message.job_id for message in well})
        for name, count in sorted(at.items()):
            tell(f"{name:<8} {count:>7,} jobs")
        assert not wrong, f"{len(wrong):,} jobs are not as they should be:\n" + "\n".join(sorted(wrong)[:20])
        tell(f"{sum(at.values()):,} jobs have succeeded, each exactly once; {again:,} were started more than once for that")
        tell(f"through: {JOBS / took:,.0f} jobs a second, {took:.1f} s from the first submission to the last end")
        tell(f"events:  {self.board.lag()}")
        tell(f"memory:  {peak(self.fleet.program):,} MB of the server at most")

    def end(self) -> None:
        """Ends all programs, whatever else goes wrong."""
        complaints = []
        for program in reversed(self.programs()):
            try:
                program.end()
            except AssertionError as error:
                complaints.append(str(error))
        assert not complaints, "\n".join(complaints)


def peak(program: Program) -> int:
    """The most memory that a program had, in MB."""
    status = Path(f"/proc/{program.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024


def main() -> None:
    """Runs the demo, and ends with a status that says whether it went well."""
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, lambda *_: sys.exit("demo: it was told to end"))
    tell(ABOUT)
    directory = Path(tempfile.mkdtemp(prefix="pumice-fleet-demo-"))
    demo, problem = Demo(directory), ""
    try:
        demo.run()
        assert remains(directory), "the check for remains finds nothing even now"
    except (AssertionError, grpc.RpcError, OSError) as error:
        problem = f"demo: {error}\n--- what the server said:\n{demo.fleet.program.tail()}"
    finally:
        try:
            demo.end()
        except AssertionError as error:
            problem = problem or f"demo: {error}"
        left = remains(directory)
        shutil.rmtree(directory, ignore_errors=True)
    if left or directory.exists():
        problem = problem or f"demo: left behind: {left or directory}"
    if problem:
        # Threads that still watch would keep it from ending.
        print(problem, file=sys.stderr, flush=True)
        os._exit(1)
    say("Done; no process and no file is left")


if __name__ == "__main__":
    main()
