"""Executors that lie, repeat themselves or mix things up: nothing that they say does harm to what is not theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from armada_client.client import ArmadaClient
from armada_client.typings import JobState

from deadline import until
from executors import Session, message, report
from fleet import JOB_SET, Fleet, Identity, follow, has, is_end, job, read, refused, state, stories, submit


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A server to which no other executors come."""
    server = Fleet(tmp_path_factory.mktemp("server"))
    try:
        server.start()
        yield server
    finally:
        server.program.end()


@pytest.fixture(scope="module")
def client(server: Fleet) -> ArmadaClient:
    """The administrator's."""
    return server.administrator.client(server.address)


@pytest.fixture
def queue(client: ArmadaClient, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    name = request.node.name.replace("_", "-").removeprefix("test-")[:60].strip("-")
    client.create_queue(client.create_queue_request(name=name, priority_factor=1.0))
    return name


@pytest.fixture(scope="module")
def identities(server: Fleet) -> dict[str, Identity]:
    """Who the two executors are."""
    return {name: server.identity("--executor", name) for name in ("east", "west")}


Open = Callable[..., Session]


@pytest.fixture
def session(server: Fleet, identities: dict[str, Identity]) -> Iterator[Open]:
    """Opens sessions, and ends them after the test."""
    sessions: list[Session] = []

    def opened(who: str, name: str | None = None, first: object = None) -> Session:
        sessions.append(Session(server, identities[who], name or who, first))
        return sessions[-1]

    yield opened
    for one in sessions:
        one.end()


def ends(client: ArmadaClient, queue: str, job_id: str) -> list[str]:
    """Of which kinds the events are that end the job."""
    return [event.type.value for event in read(client, queue, JOB_SET) if is_end(event) and event.message.job_id == job_id]


def test_an_executor_speaks_for_its_own_cluster_only(session: Open) -> None:
    said = refused(grpc.StatusCode.FAILED_PRECONDITION, lambda: session("east", name="west").hear("welcome"))
    assert said == '"east" may not speak for executor "west"'


def test_a_session_begins_as_it_should_or_ends(session: Open) -> None:
    def first(**said: object) -> object:
        return message("FromExecutor", sequence=1, **said)

    failed = grpc.StatusCode.FAILED_PRECONDITION
    said = refused(failed, lambda: session("east", first=first()).hear("welcome"))
    assert said == "a session begins with hello"
    said = refused(failed, lambda: session("east", first=first(heartbeat={})).hear("welcome"))
    assert said == "a session begins with hello"
    old = first(hello=message("Hello", executor="east", session_id="x", format_version=99))
    said = refused(failed, lambda: session("east", first=old).hear("welcome"))
    assert said == "the executor speaks format 99 and this server 1; bring both to one release"
    for name in ("", "no/name", "x" * 254):
        nameless = first(hello=message("Hello", executor=name, session_id="x", format_version=1))
        said = refused(failed, lambda first=nameless: session("east", first=first).hear("welcome"))
        assert "is no name for an executor" in said and len(said) < 400
    said = refused(grpc.StatusCode.INTERNAL, lambda: session("east", first=b"\xff" * 100).hear("welcome"))
    assert "failed to decode" in said.lower()
    session("east").hear("welcome")


def test_runs_that_nobody_leased_change_nothing(client: ArmadaClient, queue: str, session: Open) -> None:
    [job_id] = submit(client, queue, job())
    east = session("east")
    # No node: it waits.
    east.begin(0)
    never = "0" * 26 + "-1"
    for phase in ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "RETURNED", "GONE"):
        east.report(*(report(run, phase) for run in (f"{job_id}-1", f"{job_id}-7", never, "no run at all", "")))
    told = {(stop.run_id, stop.reason) for heard in east.heard for stop in heard.stop.runs}
    assert told == {(run, "the fleet has no such run") for run in (f"{job_id}-1", f"{job_id}-7", never)}
    assert state(client, job_id) == JobState.QUEUED
    assert stories(read(client, queue, JOB_SET)) == {job_id: ["submitted", "queued"]}
    client.cancel_jobs(queue, JOB_SET, job_id)


def test_nobody_reports_of_runs_of_another_cluster(client: ArmadaClient, queue: str, session: Open) -> None:
    east, west = session("east"), session("west")
    east.begin(1)
    west.begin(0)
    [job_id] = submit(client, queue, job())
    run = east.lease(job_id).run_id
    assert run == f"{job_id}-1"
    for phase in ("RUNNING", "SUCCEEDED", "FAILED", "RETURNED", "GONE"):
        west.report(report(run, phase))
    # All that west has is that run, and nothing, of which nothing follows for east's.
    west.report(report(run, "SUCCEEDED"), complete=True)
    west.report(complete=True)
    assert state(client, job_id) == JobState.LEASED
    east.report(report(run, "RUNNING", node="node-0"))
    assert state(client, job_id) == JobState.RUNNING
    east.report(report(run, "SUCCEEDED"))
    assert ends(client, queue, job_id) == ["succeeded"]


def test_what_is_said_twice_or_too_late_counts_once(client: ArmadaClient, queue: str, session: Open) -> None:
    east = session("east")
    east.begin(1)
    [job_id] = submit(client, queue, job())
    run = east.lease(job_id).run_id
    east.report(report(run, "RUNNING", node="node-0"))
    # The same number again, and one from before, whatever they bring.
    for number in (east.sequence, 1):
        last = east.sequence
        east.say(number, runs=message("Runs", reports=[report(run, "FAILED", message="a repeat")]))
        east.sequence = last
    east.report(report(run, "SUCCEEDED"), report(run, "SUCCEEDED"))
    for phase in ("RUNNING", "PENDING", "FAILED", "SUCCEEDED", "GONE", "RETURNED"):
        east.report(report(run, phase))
    follow(client, queue, JOB_SET, has(job_id, "succeeded"))
    assert ends(client, queue, job_id) == ["succeeded"]
    assert [kind for kind in stories(read(client, queue, JOB_SET))[job_id] if kind == "running"] == ["running"]


def test_a_message_that_is_missing_ends_the_session_and_the_next_goes_on(
    client: ArmadaClient, queue: str, session: Open
) -> None:
    east = session("east")
    east.begin(1)
    [job_id] = submit(client, queue, job())
    run = east.lease(job_id).run_id
    east.say(east.sequence + 2, runs=message("Runs", reports=[report(run, "SUCCEEDED")]))
    with pytest.raises(StopIteration):
        east.hear("leases")
    assert state(client, job_id) == JobState.LEASED
    # Whoever was never heard of it gets the same lease, and who has it does not.
    again = session("east")
    again.begin(1)
    assert again.lease(job_id).run_id == run
    third = session("east")
    third.begin(1, report(run, "PENDING"))
    with pytest.raises(StopIteration):
        again.hear("leases")
    third.report(report(run, "SUCCEEDED"))
    assert not [lease for heard in third.heard for lease in heard.leases.leases]
    assert ends(client, queue, job_id) == ["succeeded"]


def test_an_attempt_that_is_over_ends_no_later_one(client: ArmadaClient, queue: str, session: Open) -> None:
    east = session("east")
    east.begin(2)
    [job_id] = submit(client, queue, job())
    first = east.lease(job_id)
    east.heard.clear()
    east.report(report(first.run_id, "RETURNED", run_attempted=True, message="not here"))
    second = east.lease(job_id)
    assert (second.run_id, second.attempt, second.node != first.node) == (f"{job_id}-2", 2, True)
    for phase in ("RUNNING", "SUCCEEDED", "FAILED", "RETURNED"):
        east.report(report(first.run_id, phase))
    assert state(client, job_id) == JobState.LEASED
    east.report(report(second.run_id, "SUCCEEDED"))
    assert ends(client, queue, job_id) == ["succeeded"]


def test_what_an_executor_says_is_cut_to_what_is_kept(client: ArmadaClient, queue: str, session: Open) -> None:
    east = session("east")
    east.begin(1)
    [job_id] = submit(client, queue, job())
    run = east.lease(job_id).run_id
    big = "x" * 100_000
    east.report(report(run, "RUNNING", node=big, pod_name=big, namespace=big, pod_uid=big))
    containers = [message("RunContainer", name=big, message=big, reason=big, exit_code=1)] * 200
    east.report(report(run, "FAILED", message=big + "\0", reason=big, containers=containers))
    until(lambda: state(client, job_id) == JobState.FAILED)
    events = [event.message for event in read(client, queue, JOB_SET)]
    assert max(event.ByteSize() for event in events) < 1_000_000
    running = next(event for event in read(client, queue, JOB_SET) if event.type.value == "running").message
    assert max(map(len, (running.node_name, running.pod_name, running.pod_namespace))) <= 2048


def test_executors_are_no_people(server: Fleet, queue: str, identities: dict[str, Identity]) -> None:
    east = identities["east"].client(server.address)
    denied = grpc.StatusCode.PERMISSION_DENIED
    assert "east may not submit in queue" in refused(denied, lambda: submit(east, queue, job()))
    assert "east may not watch in queue" in refused(denied, lambda: read(east, queue, JOB_SET))
    refused(denied, lambda: east.create_queue(east.create_queue_request(name="easts", priority_factor=1.0)))
    refused(denied, lambda: east.delete_queue(queue))
