"""An executor that says whatever a test wants, over the protocol that real ones speak."""

from __future__ import annotations

import queue
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

import fleet
from deadline import DEADLINE
from fleet import Fleet, Identity

PROTO = Path(__file__).parents[2] / "crates" / "wire" / "proto"
NODE = {"cpu": "8", "memory": "64Gi", "ephemeral-storage": "1Ti", "pods": "110"}


@cache
def messages() -> dict[str, Any]:
    """Classes of the protocol's messages, by their names without the package."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "descriptors"
        known = Path(grpc_tools.__file__).parent / "_proto"
        command = [
            "protoc",
            f"-I{PROTO}",
            f"-I{known}",
            "--include_imports",
            f"--descriptor_set_out={made}",
            "executor.proto",
        ]
        assert protoc.main(command) == 0
        described = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    # Of its own: Armada's client has some of the names already.
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.Add(file)
    classes = message_factory.GetMessageClassesForFiles([file.name for file in described.file], pool)
    return {name.removeprefix("pumice.fleet.v1."): made for name, made in classes.items()}


def message(kind: str, **fields: Any) -> Any:
    """A message of the protocol."""
    return messages()[kind](**fields)


class Session:
    """A stream to the server. `first` is what it says instead of a good hello."""

    def __init__(self, server: Fleet, who: Identity, name: str, first: Any = None) -> None:
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.sequence = 0
        self._channel = fleet.channel(server.address, who.credentials)
        call = self._channel.stream_stream(
            "/pumice.fleet.v1.Executors/Session",
            request_serializer=lambda said: said if isinstance(said, bytes) else said.SerializeToString(),
            response_deserializer=messages()["ToExecutor"].FromString,
        )
        self.heard: list[Any] = []
        if first is None:
            self.say(hello=message("Hello", executor=name, session_id="test", format_version=1))
        else:
            self._said.put(first)
        self.call = call(iter(self._said.get, None), timeout=DEADLINE)

    def say(self, sequence: int | None = None, **said: Any) -> None:
        """Says something, as the next message if no other number is given."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        self._said.put(message("FromExecutor", sequence=self.sequence, **said))

    def begin(self, nodes: int = 1, *reports: Any) -> None:
        """Says what a session begins with: all nodes and all runs."""
        all_nodes = [message("NodeState", name=f"node-{number}", allocatable=NODE) for number in range(nodes)]
        self.say(nodes=message("Nodes", complete=True, nodes=all_nodes))
        self.report(*reports, complete=True)

    def report(self, *reports: Any, complete: bool = False) -> None:
        """Says something of runs, and waits until all of it is answered."""
        self.say(runs=message("Runs", complete=complete, reports=reports))
        self.answered()

    def hear(self, kind: str) -> Any:
        """The next message of that kind."""
        while True:
            heard = next(self.call)
            self.heard.append(heard)
            if heard.WhichOneof("message") == kind:
                return getattr(heard, kind)

    def answered(self) -> None:
        """Waits until the server has dealt with the last that was said."""
        while self.hear("acknowledge").seen < self.sequence:
            pass

    def lease(self, job_id: str) -> Any:
        """The lease of a job, once it is there."""
        while True:
            for heard in self.heard:
                for lease in heard.leases.leases:
                    if lease.job_id == job_id:
                        return lease
            self.hear("leases")

    def end(self) -> None:
        """Ends it."""
        self._said.put(None)
        self.call.cancel()
        self._channel.close()


def report(run_id: str, phase: str, **more: Any) -> Any:
    """What is said of a run."""
    kinds = messages()["RunReport"].DESCRIPTOR.fields_by_name["phase"].enum_type.values_by_name
    return message("RunReport", run_id=run_id, phase=kinds[f"RUN_PHASE_{phase}"].number, **more)
