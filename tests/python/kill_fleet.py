"""kill -9 of everything that a fleet is made of, at random moments, under jobs that are sent all along.

Servers on one Postgres, of which one leads, and clusters on which every pod is a process, each with its executor. What was
answered is noted, every pod writes down when it begins and ends, and in the end all of that is held against each other.

PUMICE_KILL_SEED is what all choices are drawn from, a new one each time if it is not set; PUMICE_KILL_COUNT says how many
processes are killed. `make kill-fleet` runs it with 200; `make test` with a few.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import grpc
from armada_client.armada import job_pb2
from armada_client.k8s.io.api.core.v1 import generated_pb2 as core_v1
from armada_client.typings import JobState

from deadline import until
from fleet import BINARIES, Cluster, Fleet, Program, pod, remains
from killing import Killer
from postgres import Postgres
from sending import CALL, Book, Follower, Sender, whole

QUEUES = ("ada", "bob", "eve")
# Seconds in which some job has to end, though nothing is killed any more.
STANDSTILL = 120.0
# The nodes are this machine, which offers no room of this kind by itself.
CONFIG = "submission: {defaultJobLimits: {cpu: 100m, memory: 64Mi}, queueAccess: {'*': {pods: privileged}}}\n"
# Pods note what they do in a folder of the host.
EXECUTOR_CONFIG = "queueAccess: {'*': {pods: privileged}}\n"
# What a pod does. Two of one job at a time are told by the lock, which a process has until its end.
PROGRAM = """\
cd "$1" && exec 9>>"$ARMADA_JOB_ID.lock"
flock -n 9 || echo "two $PUMICE_ATTEMPT" >>"$ARMADA_JOB_ID"
echo "begin $PUMICE_ATTEMPT" >>"$ARMADA_JOB_ID"
sleep "$2"
echo "end $PUMICE_ATTEMPT" >>"$ARMADA_JOB_ID"
exit "$3"
"""


class Storm:
    """A fleet, who uses it, and what kills it."""

    def __init__(self, directory: Path, seed: int, servers: int, clusters: int) -> None:
        self.seed = seed
        self.postgres = Postgres()
        self.evidence = directory / "evidence"
        self.evidence.mkdir()
        config = directory / "fleet.yaml"
        config.write_text(CONFIG)
        self._executor_config = directory / "executor.yaml"
        self._executor_config.write_text(EXECUTOR_CONFIG)
        flags = ("--config", str(config), "--database-url", self.postgres.url)
        self.servers = [Fleet(directory / f"server-{number}", *flags) for number in range(servers)]
        self._directory, self._clusters = directory, clusters
        self.clusters: list[Cluster] = []
        self.books = [Book(queue) for queue in QUEUES]
        self.senders: list[Sender] = []
        self.followers: list[Follower] = []

    def begin(self) -> None:
        """Starts all of it."""
        self.postgres.start()
        until(self.postgres.is_ready)
        first, *others = self.servers
        first.start()
        for other in others:
            # They have one authority.
            shutil.copytree(first.data_dir / "pki", other.data_dir / "pki")
            other.start()
        for number in range(self._clusters):
            name = f"cluster-{number}"
            place, config = self._directory / name, self._executor_config
            cluster = Cluster(first, place, name, nodes=0, others=others, config=config)
            self.clusters.append(cluster)
            cluster.up.serve()
        for cluster in self.clusters:
            cluster.up.line()
            cluster.executor.start()
        who, addresses = first.administrator, [server.address for server in self.servers]
        client = who.client(first.address)
        for book in self.books:
            client.create_queue(client.create_queue_request(name=book.queue, priority_factor=1.0))
            self.senders.append(Sender(book, who, addresses, f"{self.seed} sends to {book.queue}", self._pod))
            self.followers.append(Follower(book, who, addresses, f"{self.seed} follows {book.queue}"))
        for person in (*self.senders, *self.followers):
            person.start()

    def _pod(self, lasts: float, code: int) -> core_v1.PodSpec:
        spec = pod(cpu="100m", memory="16Mi")
        [container] = spec.containers
        path = str(self.evidence)
        container.image = "pumice.sh/host"
        container.command[:] = ["sh", "-c", PROGRAM, "sh", path, f"{lasts:.2f}", str(code)]
        del container.args[:]
        container.volumeMounts.append(core_v1.VolumeMount(name="evidence", mountPath=path))
        place = core_v1.VolumeSource(hostPath=core_v1.HostPathVolumeSource(path=path))
        spec.volumes.append(core_v1.Volume(name="evidence", volumeSource=place))
        return spec

    def run(self, kills: int) -> Killer:
        """Kills so many, and waits until all that was answered has ended."""
        programs = [(cluster.up, cluster.executor) for cluster in self.clusters]
        killer = Killer(self.seed, self.postgres, [server.program for server in self.servers], programs)
        for part in killer.parts:
            part.adopt()
        killer.run(kills, self._look)
        for sender in self.senders:
            sender.is_over.set()
        ended, moved = -1, 0.0
        while any(sender.is_alive() for sender in self.senders) or any(book.open() for book in self.books):
            self._look()
            killer.keep()
            now, count = time.monotonic(), sum(len(book.ends) for book in self.books)
            if count != ended:
                ended, moved = count, now
            assert now - moved < STANDSTILL, f"for {STANDSTILL:.0f} s no job has ended; these have not:\n{self._open()}"
            time.sleep(0.05)
        self._look()
        return killer

    def _look(self) -> None:
        for book in self.books:
            if book.broken is not None:
                raise AssertionError(f"of queue {book.queue}: {book.broken}") from book.broken

    def _open(self) -> str:
        """What is said of jobs that have not ended."""
        server = self.servers[0]
        said = []
        for job_id in [job_id for book in self.books for job_id in book.open()][:10]:
            for other in self.servers:
                status, answer = other.administrator.ask(other.address, "GET", f"/v1/job/{job_id}/scheduler-report")
                if status == 200:
                    said.append(f"{job_id}: {answer}")
        leader = self.postgres.ask("SELECT * FROM head")
        return "\n".join([*said, f"head: {leader}", f"the first server is {server.program.pid}"])

    def account(self) -> Counter[str]:
        """Holds everything against everything else."""
        counted: Counter[str] = Counter()
        for book, follower in zip(self.books, self.followers, strict=True):
            leases = self._account_of(book)
            follower.end()
            counted["jobs"] += len(book.wanted)
            counted["events"] += len(book.told)
            counted["jobs that ran more than once"] += sum(count > 1 for count in leases.values())
            counted.update(f"jobs {kind}" for kind in book.ends.values())
            counted["runs that ended in vain"] += sum(self._in_vain(job_id) for job_id in book.wanted)
        for person in (*self.senders, *self.followers):
            counted.update(person.counted)
        # What has ended, or was cancelled, runs no more.
        for lock in self.evidence.glob("*.lock"):
            until(lambda lock=lock: is_free(lock))
        self._look()
        return counted

    def _account_of(self, book: Book) -> Counter[str]:
        wrong: list[str] = []
        client = self.servers[0].administrator.client(self.servers[0].address)
        # A server, and a stream, may be a moment behind.
        until(lambda: len(whole(client, book.queue)) >= len(book.told))
        told = whole(client, book.queue)
        until(lambda: len(book.told) >= len(told))
        assert book.told == told, f"the streams of {book.queue} differ from what is there: {differ(book.told, told)}"
        for server in self.servers[1:]:
            other = server.administrator.client(server.address)
            until(lambda other=other: len(whole(other, book.queue)) >= len(told))
            assert whole(other, book.queue) == told, f"{server.program} tells another story of {book.queue}"
        submitted = Counter(job_id for _, kind, job_id in told if kind == "submitted")
        leases = Counter(job_id for _, kind, job_id in told if kind == "leased")
        wrong += [f"{job_id} was submitted {count} times" for job_id, count in submitted.items() if count != 1]
        wrong += [f"{job_id} was answered and is not there" for job_id in book.wanted.keys() - submitted.keys()]
        wrong += [f"{job_id} was never answered" for job_id in submitted.keys() - book.wanted.keys()]
        for job_id, wanted in book.wanted.items():
            end = book.ends.get(job_id)
            if end != wanted:
                said = client.get_job_errors([job_id]).job_errors.get(job_id, "")
                wrong.append(f"{job_id} was to end as {wanted} and did as {end}: {said}")
            wrong += [f"{job_id}: {problem}" for problem in self._unlikely(job_id, end or "", leases[job_id])]
        wrong += self._states(book)
        stories = [
            (job_id, [kind for _, kind, other in told if other == job_id])
            for job_id in {w.split(" ")[0].strip(":") for w in wrong[:20]}
        ]
        assert not wrong, "\n".join([f"{len(wrong)} things are not as they should be:", *wrong[:20], *map(str, stories)])
        return leases

    def _written(self, job_id: str) -> list[str]:
        """What its pods wrote."""
        file = self.evidence / job_id
        return file.read_text().splitlines() if file.exists() else []

    def _in_vain(self, job_id: str) -> int:
        """How many of its runs came to their end, but the last one."""
        return max(0, sum(line.startswith("end") for line in self._written(job_id)) - 1)

    def _unlikely(self, job_id: str, end: str, leases: int) -> list[str]:
        """What its pods wrote that does not go with its story."""
        lines = self._written(job_id)
        wrong = [f"two of its pods ran at once: {lines}" for line in lines if line.startswith("two")]
        wrong += [f"a pod ran twice: {lines}" for line, count in Counter(lines).items() if count > 1]
        attempts = [int(line.split()[1]) for line in lines]
        if attempts and max(attempts) > leases:
            wrong.append(f"it was leased {leases} times: {lines}")
        if end in ("succeeded", "failed") and f"end {leases}" not in lines:
            wrong.append(f"it {end}, and its last run {leases} did not: {lines}")
        return wrong

    def _states(self, book: Book) -> list[str]:
        wrong = []
        ids = list(book.wanted)
        for server in self.servers:
            client = server.administrator.client(server.address)
            for at in range(0, len(ids), 500):
                request = job_pb2.JobStatusRequest(job_ids=ids[at : at + 500])
                states = client.job_stub.GetJobStatus(request, timeout=CALL).job_states
                for job_id in request.job_ids:
                    state = JobState(states[job_id]).name.lower()
                    if state != book.ends.get(job_id):
                        wrong.append(f"{job_id} ended as {book.ends.get(job_id)}, and its state is {state}")
        return wrong

    def end(self) -> None:
        """Ends all of it, whatever else goes wrong, and complains of what does not like that."""
        for person in (*self.senders, *self.followers):
            person.is_over.set()
        for follower in self.followers:
            follower.end()
        complaints = []
        for program in (program for cluster in self.clusters for program in (cluster.executor, cluster.up)):
            complaints += ended(program)
        for cluster in self.clusters:
            # Pods outlive the platform; this ends them.
            subprocess.run(
                [BINARIES / "pumice", "down", "--now", "--data-dir", cluster.data_dir], check=False, capture_output=True
            )
        for server in self.servers:
            complaints += ended(server.program)
        self.postgres.end()
        assert not complaints, "\n".join(complaints)


def ended(program: Program) -> list[str]:
    """What there is to complain of when it ends."""
    try:
        program.end()
    except AssertionError as error:
        return [str(error)]
    return []


def is_free(lock: Path) -> bool:
    """Whether no process has it."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def differ(one: list[tuple[str, str, str]], other: list[tuple[str, str, str]]) -> str:
    """Where two stories part."""
    at = next((at for at, both in enumerate(zip(one, other, strict=False)) if both[0] != both[1]), min(len(one), len(other)))
    return f"{len(one)} and {len(other)} messages, that part at {at}: {one[at : at + 3]} and {other[at : at + 3]}"


def kill(kills: int, seed: int, servers: int, clusters: int) -> str:
    """A whole run. Gives its figures."""
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="pumice-kill-fleet-"))
    storm = Storm(directory, seed, servers, clusters)
    is_well = False
    try:
        storm.begin()
        killer = storm.run(kills)
        counted = storm.account()
        is_well = True
    except (AssertionError, grpc.RpcError) as error:
        said = "\n".join(f"--- {program}\n{program.tail()}" for program in (server.program for server in storm.servers))
        raise AssertionError(f"seed {seed} (PUMICE_KILL_SEED): {error}\n{said}\nall of it is in {directory}") from error
    finally:
        try:
            storm.end()
        finally:
            if is_well:
                shutil.rmtree(directory)
    left = remains(directory)
    assert not left, f"left behind: {left}"
    figures = ", ".join(f"{count:,} {what}" for what, count in sorted(counted.items()))
    killed = ", ".join(f"{count} {role}" for role, count in sorted(killer.killed.items()))
    return (
        f"seed {seed}: {killer.killed.total()} processes were killed in {time.monotonic() - began:.0f} s ({killed}; "
        f"{killer.pairs} times two at once; {killer.failed_starts} starts failed for want of Postgres)\n{figures}"
    )


def asked(kills: int) -> tuple[int, int]:
    """How many are killed, unless PUMICE_KILL_COUNT says so, and the seed."""
    count, seed = os.environ.get("PUMICE_KILL_COUNT"), os.environ.get("PUMICE_KILL_SEED")
    return int(count or kills), int(seed) if seed else secrets.randbelow(1_000_000)


def main() -> None:
    """Runs it, and ends with a status that says whether all was well."""
    for told in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told, lambda *_: sys.exit("kill-fleet: it was told to end"))
    kills, seed = asked(200)
    print(f"seed {seed}: {kills} processes of three servers, three clusters and Postgres are killed", flush=True)
    try:
        print(kill(kills, seed, servers=3, clusters=3), flush=True)
    except AssertionError as error:
        print(f"kill-fleet: {error}", file=sys.stderr, flush=True)
        # Threads that still wait would keep it from ending.
        os._exit(1)


if __name__ == "__main__":
    main()
