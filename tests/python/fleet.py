"""A running fleet for tests and for the demo: the real programs, and Armada's own client from the registry.

PUMICE_BINARIES names the directory of the programs; it is target/debug otherwise. Nothing here needs the Python library of
this project.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from armada_client.armada import event_pb2, submit_pb2
from armada_client.client import ArmadaClient
from armada_client.event import Event
from armada_client.k8s.io.api.core.v1 import generated_pb2 as core_v1
from armada_client.k8s.io.apimachinery.pkg.api.resource import generated_pb2 as resource
from armada_client.typings import JobState

from deadline import DEADLINE

BINARIES = Path(os.environ.get("PUMICE_BINARIES", Path(__file__).parents[2] / "target" / "debug")).resolve()
# Of the jobs that tests submit.
JOB_SET = "set"
SHAPE = "cpu=32,memory=256Gi,ephemeral-storage=1Ti,pods=110"


@dataclass(frozen=True)
class Identity:
    """Who somebody is: what a file of `pumice fleet identity` says."""

    file: Path
    key: bytes
    certificate: bytes
    authority: bytes

    @classmethod
    def read(cls, file: Path) -> Identity:
        """The one in a file."""
        blocks = re.findall(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\n", file.read_bytes(), re.DOTALL)
        assert len(blocks) == 3, f"{file} has {len(blocks)} parts, not a key and two certificates"
        return cls(file, *blocks)

    @property
    def credentials(self) -> grpc.ChannelCredentials:
        """What says who this is over gRPC."""
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)

    def client(self, address: str) -> ArmadaClient:
        """Armada's client, that says who this is."""
        return connect(address, self.credentials)

    def tls(self) -> ssl.SSLContext:
        """What says over HTTP who this is."""
        tls = ssl.create_default_context(cadata=self.authority.decode())
        tls.load_cert_chain(self.file)
        return tls

    def ask(self, address: str, method: str, path: str, message: object = None) -> tuple[int, Any]:
        """A request over plain HTTP: its status and the JSON of the answer."""
        return ask(address, self.tls(), method, path, message)


def connect(address: str, credentials: grpc.ChannelCredentials) -> ArmadaClient:
    """Armada's client with any credentials."""
    return ArmadaClient(channel(address, credentials))


def channel(address: str, credentials: grpc.ChannelCredentials) -> grpc.Channel:
    """A connection for gRPC with any credentials, past all proxies."""
    return grpc.secure_channel(address.removeprefix("https://"), credentials, [("grpc.enable_http_proxy", 0)])


def ask(address: str, tls: ssl.SSLContext, method: str, path: str, message: object = None) -> tuple[int, Any]:
    """A request over plain HTTP with any TLS: its status and the JSON of the answer."""
    body = None if message is None else json.dumps(message).encode()
    request = urllib.request.Request(address + path, body, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(request, timeout=DEADLINE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


class Program:
    """One process of `pumice`. What it says goes to a file."""

    def __init__(self, said: Path, *arguments: str | Path) -> None:
        self.said = said
        # Where it listens, once it has said that.
        self.address = ""
        self.process: subprocess.Popen[str] | None = None
        self._command = [str(BINARIES / "pumice"), *map(str, arguments)]

    def __str__(self) -> str:
        return " ".join(self._command)

    def wrap(self, *command: str) -> None:
        """Lets another program start it, which becomes it."""
        self._command = [*command, *self._command]

    def start(self, *more: str) -> None:
        """Starts it, without waiting for anything."""
        assert self.process is None
        with self.said.open("a") as said:
            self.process = subprocess.Popen([*self._command, *more], stdout=subprocess.PIPE, stderr=said, text=True)

    def serve(self) -> None:
        """Starts it at the port that it had before if it had one, without waiting until it is ready."""
        self.start("--port", self.address.rpartition(":")[2] or "0")

    def line(self) -> str:
        """The line that it prints when it is ready, with its address."""
        assert self.process is not None
        assert self.process.stdout is not None
        late = threading.Timer(DEADLINE, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        address = re.search(r"https://127\.0\.0\.1:\d+", line)
        assert address, f"{self} printed {line!r} and said:\n{self.tail()}"
        assert self.address in ("", address[0]), f"it was at {self.address} and is at {address[0]}"
        self.address = address[0]
        return line

    def tail(self) -> str:
        """The end of what it said."""
        return self.said.read_text()[-4000:] if self.said.exists() else ""

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self.process is not None
        return self.process.pid

    def ended(self) -> int | None:
        """Its exit code, where it has ended by itself."""
        return None if self.process is None else self.process.poll()

    def crash(self) -> None:
        """Kills it without a chance to clean up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._forget()

    def end(self) -> None:
        """Ends it as an operator does, if it runs; complains if it does not like that."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._forget()
        assert code == 0, f"{self} ended with {code} and said:\n{self.tail()}"

    def _forget(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None


class Fleet:
    """A fleet's server on a directory of its own; with `up`, the clusters and their executors are in it."""

    def __init__(self, directory: Path, *flags: str, verb: str = "server") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data_dir = directory / "data"
        self.program = Program(directory / "server.log", "fleet", verb, "--data-dir", self.data_dir, *flags)

    def start(self) -> None:
        """Starts it, and waits until it says that it is ready."""
        self.program.serve()
        line = self.program.line()
        file = self.data_dir / "administrator.pem"
        assert line == f"the fleet is up at {self.address} (administrator: {file})\n", f"it printed {line!r}"

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.program.address

    @property
    def administrator(self) -> Identity:
        """Who may do everything."""
        return Identity.read(self.data_dir / "administrator.pem")

    def identity(self, *flags: str) -> Identity:
        """A new identity."""
        command: list[str | Path] = [BINARIES / "pumice", "fleet", "identity", "--data-dir", self.data_dir, *flags]
        made = subprocess.run(command, check=False, capture_output=True, timeout=DEADLINE)
        assert made.returncode == 0, f"{command} said {made.stderr.decode()}"
        file = self.directory / ("-".join(flag.strip("-") for flag in flags) + ".pem")
        file.touch(0o600)
        file.write_bytes(made.stdout)
        return Identity.read(file)

    def executor(
        self, said: Path, identity: Identity, kubeconfig: Path, others: Iterable[Fleet] = (), *flags: str | Path
    ) -> Program:
        """An executor of it, and of other servers on the same database, that is not started."""
        who = ("--identity", identity.file, "--kubeconfig", kubeconfig)
        servers = [flag for server in (self, *others) for flag in ("--server", server.address)]
        return Program(said, "fleet", "executor", *servers, *who, *flags)


class Cluster:
    """A cluster in a process of its own, and its executor in another."""

    def __init__(
        self,
        fleet: Fleet,
        directory: Path,
        name: str,
        nodes: int,
        others: Iterable[Fleet] = (),
        config: Path | None = None,
    ) -> None:
        """With so many simulated nodes; with none, this machine is its node, and pods are processes."""
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.data_dir = directory / "data"
        simulated = (f"--simulated-nodes={nodes}", f"--simulated-node-shape={SHAPE}", "--local-node=false")
        local = ("--cpu=32", "--memory=256Gi", "--images=host")
        lean = ("--no-recording", "--history=false")
        self.kubeconfig = self.data_dir / "kubeconfig"
        self.up = Program(directory / "up.log", "up", "--data-dir", self.data_dir, *(simulated if nodes else local), *lean)
        identity = fleet.identity("--executor", name)
        flags = ("--config", config) if config else ()
        self.executor = fleet.executor(directory / "executor.log", identity, self.kubeconfig, others, *flags)

    def start(self) -> None:
        """Starts both, on the same directory if it is there."""
        self.up.serve()
        self.up.line()
        self.executor.start()

    def crash(self) -> None:
        """Kills both at once."""
        for program in (self.executor, self.up):
            if program.process is not None:
                program.process.kill()
        for program in (self.executor, self.up):
            if program.process is not None:
                program.crash()

    def end(self) -> None:
        """Ends both."""
        self.executor.end()
        self.up.end()


def remains(directory: Path) -> list[str]:
    """Processes that name the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{directory}/" in command:
            found.append(f"process {process.name}: {command}")
    return found


def pod(cpu: str = "500m", memory: str = "64Mi", node_selector: dict[str, str] | None = None) -> core_v1.PodSpec:
    """A pod's specification, as Armada's documents have it."""
    amounts = {"cpu": resource.Quantity(string=cpu), "memory": resource.Quantity(string=memory)}
    container = core_v1.Container(
        name="main",
        image="busybox:latest",
        args=["sleep", "1"],
        resources=core_v1.ResourceRequirements(requests=amounts, limits=amounts),
    )
    return core_v1.PodSpec(containers=[container], nodeSelector=node_selector)


def job(
    spec: core_v1.PodSpec | None = None, lasts: str = "1s", client_id: str = "", **annotations: str
) -> submit_pb2.JobSubmitRequestItem:
    """A job to submit. Simulated nodes read in annotations how it goes: `exit_code` is pumice.sh/simulated-exit-code."""
    said = {f"pumice.sh/simulated-{name.replace('_', '-')}": value for name, value in annotations.items()}
    said["pumice.sh/simulated-duration"] = lasts
    return submit_pb2.JobSubmitRequestItem(
        priority=1, namespace="default", pod_specs=[spec or pod()], client_id=client_id, annotations=said
    )


def submit(client: ArmadaClient, queue: str, *jobs: submit_pb2.JobSubmitRequestItem) -> list[str]:
    """Submits them, and gives their ids."""
    answer = client.submit_jobs(queue, JOB_SET, list(jobs))
    assert [item.error for item in answer.job_response_items] == [""] * len(jobs)
    return [item.job_id for item in answer.job_response_items]


def state(client: ArmadaClient, job_id: str) -> JobState:
    """What the server says of a job."""
    return JobState(client.get_job_status([job_id]).job_states[job_id])


def refused(code: grpc.StatusCode, call: Callable[[], object]) -> str:
    """What the server says to a call that it refuses."""
    try:
        answer = call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error.details()
    raise AssertionError(f"it was not refused but answered: {answer}")


def is_end(event: Event) -> bool:
    """Whether it is the last of its job. A job that is preempted fails for that, too."""
    kind = event.type.value
    return kind in ("succeeded", "cancelled") or (kind == "failed" and not event.message.retryable)


def have_ended(jobs: Collection[str]) -> Callable[[list[Event]], bool]:
    """Whether all of these jobs have ended, by the events so far."""
    left = set(jobs)

    def look(events: list[Event]) -> bool:
        if is_end(events[-1]):
            left.discard(events[-1].message.job_id)
        return not left

    return look


def has(job_id: str, kind: str) -> Callable[[list[Event]], bool]:
    """Whether the last event is of this kind and job."""
    return lambda events: events[-1].type.value == kind and events[-1].message.job_id == job_id


def follow(
    client: ArmadaClient, queue: str, job_set: str, enough: Callable[[list[Event]], bool], after: str | None = None
) -> list[Event]:
    """The events of a job set from its beginning, or after a message, until they are enough.

    `enough` is asked after each.
    """
    stream = client.get_job_events_stream(queue, job_set, after)
    late = threading.Timer(DEADLINE, stream.cancel)
    late.start()
    events: list[Event] = []
    try:
        for message in stream:
            events.append(client.unmarshal_event_response(message))
            if enough(events):
                return events
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.CANCELLED:
            raise
    finally:
        late.cancel()
        client.unwatch_events(stream)
    raise AssertionError(f"these were not enough: {stories(events)}")


def read(client: ArmadaClient, queue: str, job_set: str) -> list[Event]:
    """The events of a job set so far."""
    request = event_pb2.JobSetRequest(queue=queue, id=job_set, watch=False, errorIfMissing=True)
    messages = client.event_stub.GetJobSetEvents(request, timeout=DEADLINE)
    return [client.unmarshal_event_response(message) for message in messages]


def stories(events: Iterable[Event]) -> dict[str, list[str]]:
    """What is told of each job."""
    told: dict[str, list[str]] = {}
    for event in events:
        told.setdefault(event.message.job_id, []).append(event.type.value)
    return told
