"""The fleet through the real programs, with Armada's client as the registry has it."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from armada_client.armada import job_pb2, job_pb2_grpc, submit_pb2, submit_pb2_grpc
from armada_client.client import ArmadaClient
from armada_client.k8s.io.api.core.v1 import generated_pb2 as core_v1
from armada_client.k8s.io.apimachinery.pkg.api.resource import generated_pb2 as resource
from armada_client.permissions import Permissions, Subject
from armada_client.typings import JobState

from deadline import until
from fleet import (
    JOB_SET,
    Cluster,
    Fleet,
    ask,
    channel,
    connect,
    follow,
    has,
    have_ended,
    is_end,
    job,
    pod,
    read,
    refused,
    state,
    stories,
    submit,
)

STORY = ["submitted", "queued", "leased", "pending", "running", "succeeded"]
NOWHERE = {"example.com/nowhere": "true"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """All of a small fleet in one process."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), "--clusters", "2", "--nodes", "5", verb="up")
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.program.end()


@pytest.fixture(scope="module")
def client(fleet: Fleet) -> ArmadaClient:
    """The administrator's."""
    return fleet.administrator.client(fleet.address)


@pytest.fixture
def queue(client: ArmadaClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """A queue of the test's own, of which nothing is left running."""
    name = request.node.name.replace("_", "-")[:63].strip("-")
    client.create_queue(client.create_queue_request(name=name, priority_factor=1.0))
    yield name
    client.cancel_jobset(name, JOB_SET, [])


def test_jobs_tell_their_whole_story_in_order(client: ArmadaClient, queue: str) -> None:
    ids = submit(client, queue, *(job() for _ in range(20)))
    assert len(set(ids)) == 20
    events = follow(client, queue, JOB_SET, have_ended(ids))
    assert stories(events) == dict.fromkeys(ids, STORY)
    assert [event.message.job_id for event in events if event.type.value == "submitted"] == ids
    for event in events:
        assert (event.message.queue, event.message.job_set_id) == (queue, JOB_SET)
    by_kind = {event.type.value: event.message for event in events if event.message.job_id == ids[0]}
    assert by_kind["submitted"].job.pod_specs or by_kind["submitted"].job.HasField("pod_spec")
    assert by_kind["leased"].cluster_id == by_kind["succeeded"].cluster_id != ""
    assert by_kind["running"].node_name == by_kind["succeeded"].node_name != ""
    # As Armada calls the pod of a job: its Airflow operator asks for the log of this one.
    assert by_kind["running"].pod_name == by_kind["pending"].pod_name == f"armada-{ids[0]}-0"
    assert by_kind["running"].pod_number == by_kind["succeeded"].pod_number == 0
    assert {state(client, job_id) for job_id in ids} == {JobState.SUCCEEDED}
    details = client.get_job_details(ids[:1]).job_details[ids[0]]
    assert (details.queue, details.jobset, details.namespace) == (queue, JOB_SET, "default")
    assert [(run.job_id, run.cluster) for run in details.job_runs] == [(ids[0], by_kind["leased"].cluster_id)]
    run = client.get_job_run_details([details.latest_run_id]).job_run_details[details.latest_run_id]
    assert run.node == by_kind["running"].node_name
    assert run.started_ts.ToMilliseconds() <= run.finished_ts.ToMilliseconds()


def test_one_client_id_is_one_job(client: ArmadaClient, queue: str) -> None:
    [first] = submit(client, queue, job(client_id="mine"))
    again, twice, other = submit(client, queue, job(client_id="mine"), job(client_id="mine"), job(client_id="other"))
    assert (again, twice) == (first, first)
    assert other != first
    events = follow(client, queue, JOB_SET, have_ended([first, other]))
    assert stories(events) == {first: STORY, other: STORY}


def test_a_waiting_job_is_cancelled(client: ArmadaClient, queue: str) -> None:
    waits, stays = submit(client, queue, *(job(pod(node_selector=NOWHERE)) for _ in range(2)))
    assert state(client, waits) == JobState.QUEUED
    assert list(client.cancel_jobs(queue, JOB_SET, waits).cancelled_ids) == [waits]
    events = follow(client, queue, JOB_SET, has(waits, "cancelled"))
    assert stories(events)[waits] == ["submitted", "queued", "cancelling", "cancelled"]
    assert events[-1].message.requestor == "administrator"
    assert (state(client, waits), state(client, stays)) == (JobState.CANCELLED, JobState.QUEUED)
    client.cancel_jobset(queue, JOB_SET, [JobState.QUEUED])
    follow(client, queue, JOB_SET, has(stays, "cancelled"))


def test_a_running_job_is_cancelled(client: ArmadaClient, queue: str) -> None:
    [job_id] = submit(client, queue, job(lasts="1h"))
    follow(client, queue, JOB_SET, has(job_id, "running"))
    assert state(client, job_id) == JobState.RUNNING
    client.cancel_jobs(queue, JOB_SET, job_id)
    events = follow(client, queue, JOB_SET, has(job_id, "cancelled"))
    assert stories(events)[job_id] == [*STORY[:-1], "cancelling", "cancelled"]
    assert state(client, job_id) == JobState.CANCELLED


def test_a_running_job_is_preempted_for_good_if_its_class_allows_it(client: ArmadaClient, queue: str) -> None:
    yielding = pod()
    yielding.priorityClassName = "armada-preemptible"
    yields, stays = submit(client, queue, job(yielding, lasts="1h"), job(lasts="1h"))
    for job_id in (yields, stays):
        follow(client, queue, JOB_SET, has(job_id, "running"))
    said = client.preempt_jobs(queue, JOB_SET, stays).preemption_results[stays]
    assert "runs of the priority class armada-default are not preemptible" in said
    assert client.preempt_jobs(queue, JOB_SET, yields).preemption_results[yields] == ""
    events = follow(client, queue, JOB_SET, have_ended([yields]))
    assert stories(events)[yields] == [*STORY[:-1], "preempting", "preempted", "failed"]
    assert (state(client, yields), state(client, stays)) == (JobState.PREEMPTED, JobState.RUNNING)
    [failed] = [event.message for event in events if event.type.value == "failed"]
    assert dict(client.get_job_errors([yields, stays]).job_errors) == {yields: failed.reason}
    assert failed.reason == "preempted by administrator"
    assert client.preempt_jobs(queue, JOB_SET, yields).preemption_results[yields] == "", "it is as was asked"
    assert list(client.cancel_jobs(queue, JOB_SET, yields).cancelled_ids) == []


def test_a_job_gets_another_place_in_the_queue(client: ArmadaClient, queue: str) -> None:
    [job_id] = submit(client, queue, job(pod(node_selector=NOWHERE)))
    assert dict(client.reprioritize_jobs(7.0, [job_id], JOB_SET, queue).reprioritization_results) == {job_id: ""}
    events = follow(client, queue, JOB_SET, has(job_id, "reprioritized"))
    assert stories(events)[job_id] == ["submitted", "queued", "reprioritizing", "reprioritized"]
    assert events[-1].message.new_priority == 7.0


def test_one_unknown_job_refuses_nothing_of_the_others(client: ArmadaClient, queue: str) -> None:
    [known] = submit(client, queue, job(pod(node_selector=NOWHERE)))
    missing, wrong = "01" * 13, "not an id"
    ids = [missing, known, wrong]
    results = client.reprioritize_jobs(1.0, ids, JOB_SET, queue).reprioritization_results
    assert (set(results), results[known]) == (set(ids), "")
    assert "no such job" in results[missing]
    assert "is no job id" in results[wrong]
    states = {job_id: JobState(said) for job_id, said in client.get_job_status(ids).job_states.items()}
    assert states == {known: JobState.QUEUED, missing: JobState.UNKNOWN, wrong: JobState.UNKNOWN}
    assert list(client.get_job_details(ids).job_details) == [known]
    assert dict(client.get_job_errors(ids).job_errors) == {}
    assert list(client.cancel_jobs(queue, JOB_SET, missing).cancelled_ids) == []
    assert state(client, known) == JobState.QUEUED


def test_all_jobs_of_a_set_get_another_place(client: ArmadaClient, queue: str) -> None:
    ids = submit(client, queue, *(job(pod(node_selector=NOWHERE)) for _ in range(3)))
    whole = client.reprioritize_jobs(7.0, None, JOB_SET, queue).reprioritization_results
    assert dict(whole) == {f"all jobs in job set {JOB_SET}": ""}
    moved = ["submitted", "queued", "reprioritized"]
    events = follow(client, queue, JOB_SET, lambda events: stories(events) == dict.fromkeys(ids, moved))
    assert {(event.message.new_priority, event.message.requestor) for event in events[-3:]} == {(7.0, "administrator")}


def test_very_many_jobs_are_moved_and_cancelled_each_once(client: ArmadaClient, queue: str) -> None:
    # More than one decision takes.
    several = [job(pod(node_selector=NOWHERE)) for _ in range(4_000)]
    jobs = [job_id for _ in range(3) for job_id in submit(client, queue, *several)]
    client.reprioritize_jobs(3.0, None, JOB_SET, queue)
    client.cancel_jobset(queue, JOB_SET, [])
    events = follow(client, queue, JOB_SET, have_ended(jobs))
    told = Counter(tuple(story) for story in stories(events).values())
    assert told == {("submitted", "queued", "reprioritized", "cancelled"): len(jobs)}


def test_all_of_a_queue_is_cancelled_or_preempted(fleet: Fleet, client: ArmadaClient, queue: str) -> None:
    yielding = pod()
    yielding.priorityClassName = "armada-preemptible"
    waits, runs, yields = submit(client, queue, job(pod(node_selector=NOWHERE)), job(lasts="1h"), job(yielding, lasts="1h"))
    for job_id in (runs, yields):
        follow(client, queue, JOB_SET, has(job_id, "running"))
    administrator = fleet.administrator
    with channel(fleet.address, administrator.credentials) as open_channel:
        active = job_pb2_grpc.JobsStub(open_channel).GetActiveQueues(job_pb2.GetActiveQueuesRequest(), timeout=60)
        assert queue in active.active_queues_by_pool["default"].queues
        queues = submit_pb2_grpc.QueueServiceStub(open_channel)
        queues.PreemptOnQueue(submit_pb2.QueuePreemptRequest(name=queue, pools=["default"]), timeout=60)
        events = follow(client, queue, JOB_SET, have_ended([yields]))
        assert stories(events)[yields] == [*STORY[:-1], "preempted", "failed"]
        queued = [submit_pb2.JobState.QUEUED]
        queues.CancelOnQueue(submit_pb2.QueueCancelRequest(name=queue, jobStates=queued), timeout=60)
        events = follow(client, queue, JOB_SET, has(waits, "cancelled"))
        assert (events[-1].message.requestor, events[-1].message.reason) == (
            "administrator",
            "cancelled by CancelOnQueue",
        )
        assert state(client, runs) == JobState.RUNNING
        queues.CancelOnQueue(submit_pb2.QueueCancelRequest(name=queue), timeout=60)
        follow(client, queue, JOB_SET, has(runs, "cancelled"))
        unknown = submit_pb2.QueueCancelRequest(name="nobodys")
        refused(grpc.StatusCode.NOT_FOUND, lambda: queues.CancelOnQueue(unknown, timeout=60))


def test_what_runs_on_a_node_or_an_executor_is_cancelled(fleet: Fleet, client: ArmadaClient, queue: str) -> None:
    ids = submit(client, queue, *(job(pod(cpu="20"), lasts="1h") for _ in range(4)))
    for job_id in ids:
        follow(client, queue, JOB_SET, has(job_id, "running"))
    details = client.get_job_details(ids).job_details
    places = {job_id: (details[job_id].job_runs[0].cluster, details[job_id].job_runs[0].node) for job_id in ids}
    cluster, node = places[ids[0]]
    administrator = fleet.administrator
    request = {"executor": cluster, "queues": [queue]}
    assert administrator.ask(fleet.address, "POST", f"/v1/node/cancel/{node}", request) == (200, {})
    on_node = {job_id for job_id in ids if places[job_id] == (cluster, node)}
    events = follow(client, queue, JOB_SET, have_ended(on_node))
    assert {event.message.job_id for event in events if is_end(event)} == on_node
    for each in {place[0] for place in places.values()}:
        assert administrator.ask(fleet.address, "POST", f"/v1/executor/cancel/{each}", {}) == (200, {})
    follow(client, queue, JOB_SET, have_ended(ids))
    bob = fleet.identity("--user", "bob")
    status, answer = bob.ask(fleet.address, "POST", f"/v1/executor/cancel/{cluster}", {})
    assert (status, answer["code"]) == (403, grpc.StatusCode.PERMISSION_DENIED.value[0])
    # A name that nobody has would do nothing, and one that lives is not forgotten.
    status, answer = administrator.ask(fleet.address, "POST", "/v1/executor/cancel/nowhere", {})
    assert (status, answer["code"]) == (404, grpc.StatusCode.NOT_FOUND.value[0])
    assert answer["message"].startswith("there is no executor nowhere: there are ")
    status, answer = administrator.ask(fleet.address, "DELETE", f"/v1/executors/{cluster}", {})
    assert (status, answer["code"]) == (400, grpc.StatusCode.FAILED_PRECONDITION.value[0])


def test_a_cordoned_executor_gets_nothing_new(fleet: Fleet, client: ArmadaClient, queue: str) -> None:
    administrator = fleet.administrator
    settings = "/v1/executor_settings/cluster-1"
    cordon = {"cordoned": True, "cordonReason": "new kernel"}
    assert administrator.ask(fleet.address, "PUT", settings, cordon) == (200, {})
    try:
        ids = submit(client, queue, *(job() for _ in range(50)))
        events = follow(client, queue, JOB_SET, have_ended(ids))
        assert stories(events) == dict.fromkeys(ids, STORY)
        assert {event.message.cluster_id for event in events if event.type.value == "leased"} == {"cluster-2"}
    finally:
        assert administrator.ask(fleet.address, "DELETE", settings, {}) == (200, {})
    ids = submit(client, queue, *(job(pod(cpu="20"), lasts="2s") for _ in range(6)))
    events = follow(client, queue, JOB_SET, have_ended(ids))
    clusters = {event.message.cluster_id for event in events if event.type.value == "leased"}
    assert clusters == {"cluster-1", "cluster-2"}
    status, answer = administrator.ask(fleet.address, "PUT", settings, {"cordoned": True})
    assert (status, answer["message"]) == (400, "cordonReason: it is missing")


def test_a_job_fails_and_says_why(client: ArmadaClient, queue: str) -> None:
    failing, killed, well = submit(client, queue, job(exit_code="3"), job(oom="true"), job())
    events = follow(client, queue, JOB_SET, have_ended([failing, killed, well]))
    assert stories(events)[failing] == [*STORY[:-1], "failed"]
    ends = {event.message.job_id: event.message for event in events if is_end(event)}
    assert [(end.name, end.exitCode) for end in ends[failing].container_statuses] == [("main", 3)]
    [end] = ends[killed].container_statuses
    assert (end.exitCode, end.reason) == (137, "OOMKilled")
    assert (state(client, failing), state(client, well)) == (JobState.FAILED, JobState.SUCCEEDED)
    errors = client.get_job_errors([failing, killed, well]).job_errors
    assert set(errors) == {failing, killed}
    assert errors[failing] == ends[failing].reason != ""


def test_a_stream_goes_on_after_a_message(client: ArmadaClient, queue: str) -> None:
    ids = submit(client, queue, *(job() for _ in range(3)))
    events = follow(client, queue, JOB_SET, have_ended(ids))
    assert len({event.id for event in events}) == len(events)
    for at in (0, 1, len(events) // 2, len(events) - 2):
        rest = follow(client, queue, JOB_SET, lambda seen, left=len(events) - 1 - at: len(seen) == left, events[at].id)
        assert [(event.id, event.message) for event in rest] == [(event.id, event.message) for event in events[at + 1 :]]
    # A place in Armada's own log is none here: all is told.
    for of_armada in ("1690000000000:0:3:1", "1690000000000-0"):
        anew = follow(client, queue, JOB_SET, have_ended(ids), of_armada)
        assert [event.id for event in anew] == [event.id for event in events]


def test_what_is_wrong_is_refused_with_its_place(client: ArmadaClient, queue: str) -> None:
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    said = refused(grpc.StatusCode.NOT_FOUND, lambda: submit(client, "nobodys", job()))
    assert said == "there is no queue nobodys"
    said = refused(grpc.StatusCode.NOT_FOUND, lambda: read(client, queue, "no-such-set"))
    assert said == f"there is no job set no-such-set in queue {queue}"
    said = refused(invalid, lambda: submit(client, queue, job(), job(core_v1.PodSpec())))
    assert said == "jobRequestItems[1].podSpec.containers: there is none: a pod has at least one"
    uneven = pod()
    uneven.containers[0].resources.limits["cpu"].CopyFrom(resource.Quantity(string="100m"))
    said = refused(invalid, lambda: submit(client, queue, job(uneven)))
    assert "jobRequestItems[0].podSpec.containers[0].resources.limits[cpu]: 100m is below the request of 500m" in said
    said = refused(invalid, lambda: submit(client, queue, job(pod(cpu="lots"))))
    assert said == "jobRequestItems[0].podSpec: containers[0].resources.limits.cpu: it must be a quantity"
    nameless = job()
    nameless.namespace = ""
    assert "jobRequestItems[0].namespace: it is missing" in refused(invalid, lambda: submit(client, queue, nameless))
    again = client.create_queue_request(name=queue, priority_factor=1.0)
    refused(grpc.StatusCode.ALREADY_EXISTS, lambda: client.create_queue(again))
    refused(grpc.StatusCode.NOT_FOUND, lambda: read(client, queue, JOB_SET))


def test_strangers_are_refused(fleet: Fleet, queue: str) -> None:
    authority = fleet.administrator.authority
    stranger = connect(fleet.address, grpc.ssl_channel_credentials(authority))
    for call in (
        lambda: submit(stranger, queue, job()),
        lambda: stranger.get_queue(queue),
        lambda: read(stranger, queue, JOB_SET),
        stranger.get_queues,
    ):
        refused(grpc.StatusCode.UNAUTHENTICATED, call)
    tls = ssl.create_default_context(cadata=authority.decode())
    status, answer = ask(fleet.address, tls, "GET", f"/v1/queue/{queue}")
    assert (status, answer["code"]) == (401, grpc.StatusCode.UNAUTHENTICATED.value[0])


def test_users_may_what_a_queue_allows(fleet: Fleet, client: ArmadaClient, queue: str) -> None:
    bob = fleet.identity("--user", "bob", "--group", "physics").client(fleet.address)
    denied = grpc.StatusCode.PERMISSION_DENIED
    assert "bob may not submit in queue" in refused(denied, lambda: submit(bob, queue, job()))
    [job_id] = submit(client, queue, job(pod(node_selector=NOWHERE)))
    assert "bob may not watch in queue" in refused(denied, lambda: read(bob, queue, JOB_SET))
    refused(denied, lambda: bob.cancel_jobs(queue, JOB_SET, job_id))
    refused(denied, lambda: bob.reprioritize_jobs(7.0, [job_id], JOB_SET, queue))
    refused(denied, lambda: bob.create_queue(bob.create_queue_request(name="bobs", priority_factor=1.0)))
    refused(denied, lambda: bob.delete_queue(queue))
    allowed = Permissions([Subject("Group", "physics")], ["submit", "watch"])
    client.update_queue(client.create_queue_request(name=queue, priority_factor=1.0, permissions=[allowed]))
    [theirs] = submit(bob, queue, job())
    events = follow(bob, queue, JOB_SET, have_ended([theirs]))
    assert stories(events) == {job_id: ["submitted", "queued"], theirs: STORY}
    assert "bob may not cancel in queue" in refused(denied, lambda: bob.cancel_jobs(queue, JOB_SET, job_id))


def test_queues_are_made_changed_and_removed(client: ArmadaClient, queue: str) -> None:
    client.update_queue(client.create_queue_request(name=queue, priority_factor=2.5, group_owners=["physics"]))
    found = client.get_queue(queue)
    assert (found.name, found.priority_factor, list(found.group_owners)) == (queue, 2.5, ["physics"])
    others = [client.create_queue_request(name=f"{queue}-{n}", priority_factor=1.0) for n in range(2)]
    assert not client.create_queues(others).failed_queues
    assert {queue, f"{queue}-0", f"{queue}-1"} <= {found.name for found in client.get_queues()}
    for other in others:
        client.delete_queue(other.name)
        refused(grpc.StatusCode.NOT_FOUND, lambda name=other.name: client.get_queue(name))


def test_plain_http_does_the_same(fleet: Fleet, client: ArmadaClient, queue: str) -> None:
    administrator = fleet.administrator
    amounts = {"cpu": "500m", "memory": "64Mi"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}
    item = {
        "namespace": "default",
        "podSpecs": [{"containers": [container]}],
        "annotations": {"pumice.sh/simulated-duration": "1s"},
    }
    request = {"queue": queue, "jobSetId": JOB_SET, "jobRequestItems": [item]}
    status, answer = administrator.ask(fleet.address, "POST", "/v1/job/submit", request)
    assert status == 200, answer
    [job_id] = [item["jobId"] for item in answer["jobResponseItems"]]
    events = follow(client, queue, JOB_SET, have_ended([job_id]))
    assert stories(events) == {job_id: STORY}
    status, answer = administrator.ask(fleet.address, "GET", f"/v1/queue/{queue}")
    assert (status, answer["name"], answer["priorityFactor"]) == (200, queue, 1)
    status, answer = administrator.ask(fleet.address, "POST", "/v1/job/status", {"jobIds": [job_id]})
    assert (status, answer) == (200, {"jobStates": {job_id: "SUCCEEDED"}})
    paths = (f"/v1/job/{job_id}/scheduler-report", f"/v1/scheduling-report?mostRecentForJob.jobId={job_id}")
    of_job, of_query = (administrator.ask(fleet.address, "GET", path) for path in paths)
    assert of_job == of_query
    paths = (f"/v1/queue/{queue}/scheduler-report", f"/v1/scheduling-report?mostRecentForQueue.queueName={queue}")
    of_queue, of_query = (administrator.ask(fleet.address, "GET", path) for path in paths)
    assert of_queue == of_query
    assert of_queue[0] == 200
    status, answer = administrator.ask(fleet.address, "GET", "/v1/queue/nobodys")
    assert (status, answer["code"], answer["message"]) == (404, 5, "there is no queue nobodys")
    item["podSpecs"] = []
    status, answer = administrator.ask(fleet.address, "POST", "/v1/job/submit", request)
    assert (status, answer["message"]) == (400, "jobRequestItems[0].podSpec: it is missing: give one pod spec")
    status, _ = administrator.ask(fleet.address, "GET", "/v1/nothing")
    assert status == 404


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, list[Cluster]]]:
    """A server and two clusters, each in processes of their own."""
    directory = tmp_path_factory.mktemp("apart")
    server = Fleet(directory / "server")
    clusters: list[Cluster] = []
    try:
        server.start()
        clusters = [Cluster(server, directory / name, name, nodes=5) for name in ("east", "west")]
        for cluster in clusters:
            cluster.start()
        yield server, clusters
    finally:
        try:
            for cluster in clusters:
                cluster.end()
        finally:
            server.program.end()


def test_a_server_that_is_killed_loses_nothing(apart: tuple[Fleet, list[Cluster]]) -> None:
    server, clusters = apart
    client = server.administrator.client(server.address)
    client.create_queue(client.create_queue_request(name="killed", priority_factor=1.0))
    # Of these 160 fit on both clusters at once.
    ids = submit(client, "killed", *(job(pod(cpu="2"), lasts="2s", client_id=str(n)) for n in range(200)))
    seen = follow(client, "killed", JOB_SET, lambda events: sum(map(is_end, events)) >= 20)
    server.program.crash()
    server.start()
    client = server.administrator.client(server.address)
    again = submit(client, "killed", *(job(pod(cpu="2"), client_id=str(n)) for n in range(200)))
    assert again == ids
    follow(client, "killed", JOB_SET, have_ended(ids))
    events = read(client, "killed", JOB_SET)
    assert [event.id for event in events[: len(seen)]] == [event.id for event in seen]
    assert Counter(event.message.job_id for event in events if is_end(event)) == dict.fromkeys(ids, 1)
    for story in stories(events).values():
        # What a pod was while nobody heard of it is not told.
        assert story == [kind for kind in STORY if kind in story]
        assert {*STORY[:3], "succeeded"} <= set(story)
    assert {event.message.cluster_id for event in events if event.type.value == "leased"} == {"east", "west"}
    assert [cluster.executor.ended() for cluster in clusters] == [None, None]


def test_a_user_is_no_executor(apart: tuple[Fleet, list[Cluster]], tmp_path: Path) -> None:
    server, [cluster, *_] = apart
    mallory = server.identity("--user", "mallory")
    executor = server.executor(tmp_path / "said", mallory, cluster.kubeconfig)
    executor.start()
    try:
        assert until(lambda: executor.ended() is not None) and executor.ended() != 0
        assert 'is the identity of "mallory", who is no executor' in executor.tail()
    finally:
        executor.crash()
    # Whoever leaves that check out gets no further.
    with channel(server.address, mallory.credentials) as open_channel:
        session = open_channel.stream_stream("/pumice.fleet.v1.Executors/Session")
        said = refused(grpc.StatusCode.PERMISSION_DENIED, lambda: list(session(iter([b""]), timeout=60)))
    assert "mallory is no executor" in said
    assert cluster.executor.ended() is None
