"""What people get wrong, or send on purpose: each is refused with a clear word, nothing is kept, and the fleet goes on."""

from __future__ import annotations

import gzip
import json
import queue as queues
import socket
import ssl
import struct
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from armada_client.armada import submit_pb2
from armada_client.client import ArmadaClient
from armada_client.k8s.io.api.core.v1 import generated_pb2 as core_v1

from deadline import DEADLINE
from fleet import JOB_SET, Fleet, channel, follow, have_ended, job, pod, read, refused, stories, submit

INVALID = grpc.StatusCode.INVALID_ARGUMENT
SUBMIT = "/api.Submit/SubmitJobs"
# After this the server has given up whoever sends nothing more, seconds.
PATIENCE = 45.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """All of a small fleet in one process."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), "--clusters", "1", "--nodes", "2", verb="up")
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
    """A queue of the test's own, in which there is nothing after it, and in which all goes well then."""
    name = request.node.name.replace("_", "-").removeprefix("test-")[:60].strip("-")
    client.create_queue(client.create_queue_request(name=name, priority_factor=1.0))
    yield name
    refused(grpc.StatusCode.NOT_FOUND, lambda: read(client, name, JOB_SET))
    [job_id] = submit(client, name, job(lasts="100ms"))
    assert list(stories(follow(client, name, JOB_SET, have_ended([job_id])))) == [job_id]


def with_container(**fields: object) -> core_v1.PodSpec:
    """A pod whose container has these fields, too."""
    spec = pod()
    spec.containers[0].MergeFrom(core_v1.Container(**fields))
    return spec


def in_gang(cardinality: str, spec: core_v1.PodSpec | None = None) -> submit_pb2.JobSubmitRequestItem:
    """A job of a gang."""
    item = job(spec)
    item.annotations.update({"armadaproject.io/gangId": "g", "armadaproject.io/gangCardinality": cardinality})
    return item


def other_class(name: str) -> core_v1.PodSpec:
    """A pod of a priority class."""
    return core_v1.PodSpec(containers=pod().containers, priorityClassName=name)


def test_jobs_that_cannot_be_are_refused_with_place_and_reason(client: ArmadaClient, queue: str) -> None:
    good, item = job(), "jobRequestItems[1]."
    port = core_v1.ContainerPort(containerPort=80)
    preferring = core_v1.Affinity(
        nodeAffinity=core_v1.NodeAffinity(
            preferredDuringSchedulingIgnoredDuringExecution=[core_v1.PreferredSchedulingTerm()]
        )
    )
    bare = core_v1.PodSpec(containers=[core_v1.Container(name="main")])
    annotated = job()
    annotated.annotations["big"] = "x" * 300_000
    twice = job()
    twice.pod_specs.append(pod())
    for bad, code, words in (
        (job(core_v1.PodSpec()), INVALID, f"{item}podSpec.containers: there is none"),
        (job(bare), INVALID, f"{item}podSpec.containers[0].resources: it names none: set requests and limits"),
        (
            job(pod(cpu="-1")),
            INVALID,
            f'{item}podSpec.containers[0].resources.requests[cpu]: "-1" is not an amount between 0',
        ),
        (job(pod(cpu="lots")), INVALID, f"{item}podSpec: containers[0].resources.limits.cpu: it must be a quantity"),
        (job(pod(memory="1")), INVALID, "is below the least, 1Mi: request more"),
        (job(other_class("vip")), INVALID, f'{item}podSpec.priorityClassName: "vip" is not to be had: use armada-default'),
        (job(core_v1.PodSpec(containers=pod().containers, affinity=preferring)), INVALID, "preferences are not read"),
        (job(with_container(ports=[port, port])), INVALID, "80 is a port of podSpec.containers[0], too"),
        (
            job(core_v1.PodSpec(containers=pod().containers, terminationGracePeriodSeconds=86400)),
            INVALID,
            "86400 is not between",
        ),
        (job(with_container(args=["x" * 70_000])), INVALID, f"{item}podSpec: it has more than 65535 bytes"),
        (job(client_id="x" * 101), INVALID, f"{item}clientId: it has 101 characters: have at most 100"),
        (annotated, INVALID, f"{item}annotations: labels and annotations have "),
        (twice, INVALID, f"{item}podSpecs: there are 2 pod specs"),
        (in_gang("many"), INVALID, '"many" is no number above zero'),
        (in_gang("-2"), INVALID, '"-2" is no number above zero'),
    ):
        said = refused(code, lambda bad=bad: submit(client, queue, good, bad))
        assert words in said and len(said) < 1000, said


def test_gangs_that_disagree_are_refused(client: ArmadaClient, queue: str) -> None:
    said = refused(INVALID, lambda: submit(client, queue, in_gang("2"), in_gang("3")))
    assert 'gangCardinality]: "3", but "2" in jobRequestItems[0] of the same gang "g"' in said
    mixed = in_gang("2", other_class("armada-preemptible"))
    said = refused(INVALID, lambda: submit(client, queue, in_gang("2"), mixed))
    assert 'podSpec.priorityClassName: "armada-preemptible", but "armada-default" in jobRequestItems[0]' in said


def test_requests_that_are_too_large_are_refused(client: ArmadaClient, queue: str) -> None:
    said = refused(INVALID, lambda: submit(client, queue, *[job()] * 10_001))
    assert said == "jobRequestItems: there are 10001: have at most 10000 in a request"
    # 100 MB.
    item = job(with_container(args=["x" * 60_000]))
    said = refused(grpc.StatusCode.OUT_OF_RANGE, lambda: submit(client, queue, *[item] * 1_700))
    assert "67108864 bytes" in said, said


def test_queues_and_jobs_that_are_not_there_are_named(client: ArmadaClient, queue: str) -> None:
    said = refused(grpc.StatusCode.NOT_FOUND, lambda: submit(client, "nobodys", job()))
    assert said == "there is no queue nobodys"
    for call in (
        lambda: client.cancel_jobs("nobodys", JOB_SET, "01" * 13),
        lambda: client.cancel_jobset("nobodys", JOB_SET, []),
        lambda: client.preempt_jobs("nobodys", JOB_SET, "01" * 13),
        lambda: client.reprioritize_jobs(1.0, ["01" * 13], JOB_SET, "nobodys"),
        lambda: client.get_queue("nobodys"),
        lambda: read(client, "nobodys", JOB_SET),
    ):
        assert "there is no queue nobodys" in refused(grpc.StatusCode.NOT_FOUND, call)
    assert "jobIds: " in refused(INVALID, lambda: client.cancel_jobs(queue, JOB_SET, "not an id"))
    long = "x" * 2000
    assert "jobSetId: it has 2000 " in refused(INVALID, lambda: client.submit_jobs(queue, long, [job()]))
    assert "queue: it has 2000 bytes" in refused(INVALID, lambda: submit(client, long, job()))
    named = client.create_queue_request(name=long, priority_factor=1.0)
    assert refused(INVALID, lambda: client.create_queue(named)) == "name: must be no more than 63 bytes"


def call_raw(fleet: Fleet, body: bytes, **options: object) -> bytes:
    """A submission whose message is these bytes."""
    with channel(fleet.address, fleet.administrator.credentials) as opened:
        return opened.unary_unary(SUBMIT)(body, timeout=DEADLINE, **options)


def test_messages_that_are_none_are_refused(fleet: Fleet, queue: str) -> None:
    # The queue's name is no UTF-8.
    said = refused(grpc.StatusCode.INTERNAL, lambda: call_raw(fleet, b"\x0a\x02\xff\xfe"))
    assert "JobSubmitRequest.queue" in said and "not UTF-8" in said
    assert "decode" in refused(grpc.StatusCode.INTERNAL, lambda: call_raw(fleet, b"\xff" * 1000))
    # A field of 2 GiB, of which nothing is there.
    assert "decode" in refused(grpc.StatusCode.INTERNAL, lambda: call_raw(fleet, b"\x1a\xff\xff\xff\xff\x07"))
    # Groups within groups, as deep as they come.
    assert "decode" in refused(grpc.StatusCode.INTERNAL, lambda: call_raw(fleet, b"\x7b" * 1_000_000))
    # Small as it comes, and larger than any message once it is unpacked.
    said = refused(
        grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: call_raw(fleet, bytes(100 << 20), compression=grpc.Compression.Gzip)
    )
    assert "67108864 bytes" in said


def ask_raw(fleet: Fleet, body: bytes, path: str = "/v1/job/submit", **headers: str) -> tuple[int, str]:
    """A request over HTTP/1.1 whose body is these bytes."""
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=fleet.administrator.tls())
    )
    request = urllib.request.Request(fleet.address + path, body, {"Content-Type": "application/json", **headers})
    try:
        with opener.open(request, timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_json_that_is_none_is_refused(fleet: Fleet, queue: str) -> None:
    deep = b'{"jobRequestItems":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    deeper = b'{"jobRequestItems":[{"podSpecs":[' + b'{"affinity":' * 10_000 + b"{}" + b"}" * 10_000 + b"]}]}"
    unknown = b'{"nothing":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    named = json.dumps({"queue": queue, "jobSetId": JOB_SET}).encode()[:-1]
    for body, status, words in (
        (deep, 400, "line 1 column"),
        (deeper, 400, "recursion limit exceeded"),
        # What has no meaning is passed over, however it looks.
        (unknown, 400, "queue: it is missing"),
        (b'{"queue":"\xff\xfe"}', 400, "invalid unicode code point"),
        (b"{", 400, "EOF while parsing"),
        (b"[]", 400, "line 1 column"),
        (b'{"queue":7}', 400, "line 1 column"),
        (named + b',"jobRequestItems":[{"priority":"soon"}]}', 400, "line 1 column"),
        (named + b',"jobRequestItems":[{"podSpecs":[{"containers":[{"name":7}]}]}]}', 400, ""),
        (gzip.compress(b"{" + b" " * 10_000_000 + b"}"), 400, "line 1 column 1"),
    ):
        got, answer = ask_raw(fleet, body)
        assert got == status and words in json.loads(answer)["message"] and len(answer) < 1000, (body[:40], got, answer)
    got, answer = ask_raw(fleet, b" " * (100 << 20))
    assert (got, json.loads(answer)["message"]) == (413, "the body has more than 67108864 bytes")


def connection(fleet: Fleet, protocol: str, tls: ssl.SSLContext | None = None) -> ssl.SSLSocket:
    """A connection on which a test may say anything."""
    tls = tls or fleet.administrator.tls()
    tls.set_alpn_protocols([protocol])
    host, port = fleet.address.removeprefix("https://").split(":")
    plain = socket.create_connection((host, int(port)), timeout=PATIENCE)
    return tls.wrap_socket(plain, server_hostname=host)


def rest(opened: ssl.SSLSocket) -> bytes:
    """All that comes until the server ends the connection."""
    said = b""
    try:
        while more := opened.recv(65536):
            said += more
    except (ConnectionError, ssl.SSLEOFError):
        pass
    return said


def test_what_is_not_http_ends_its_connection_only(fleet: Fleet, queue: str) -> None:
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    frame = struct.pack(">I", 0)[1:]
    for protocol, said, words in (
        ("http/1.1", b"\x00" * 100, b"HTTP/1.1 400"),
        ("http/1.1", b"GET / HTTP/9.9\r\n\r\n", b""),
        (
            "http/1.1",
            b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: %s\r\n" % (n, b"x" * 1000) for n in range(100)) + b"\r\n",
            b"HTTP/1.1 431",
        ),
        ("http/1.1", b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.1 4"),
        ("http/1.1", b"POST /v1/job/submit HTTP/1.1\r\nhost: x\r\ncontent-length: no\r\n\r\n", b"HTTP/1.1 400"),
        ("h2", hello + b"\xff" * 1000, b""),
        # A window of nothing, and a stream that is of no number.
        ("h2", hello + frame + b"\x04\x00" + bytes(4) + struct.pack(">I", 4)[1:] + b"\x08\x00" + bytes(8), b""),
        ("h2", hello + frame + b"\x04\x00" + bytes(4) + frame + b"\x01\x05" + bytes(4), b""),
        # Frames that are larger than was agreed on.
        ("h2", hello + frame + b"\x04\x00" + bytes(4) + b"\xff\xff\xff\x00\x00" + bytes(4) + b"\xff" * 100_000, b""),
    ):
        with connection(fleet, protocol) as opened:
            try:
                opened.sendall(said)
            except (ConnectionError, ssl.SSLEOFError):
                # It had heard enough.
                continue
            assert words in rest(opened), (protocol, said[:60])


def test_headers_that_are_too_large_are_refused(fleet: Fleet, queue: str) -> None:
    with channel(fleet.address, fleet.administrator.credentials) as opened:
        call = opened.unary_unary(SUBMIT)
        with pytest.raises(grpc.RpcError):
            call(b"", metadata=[("big", "x" * 200_000)], timeout=DEADLINE)
        # The connection is the same.
        assert "queue: it is missing" in refused(INVALID, lambda: call(b"", timeout=DEADLINE))


def slow(fleet: Fleet, protocol: str, said: bytes) -> bytes:
    """What comes on a connection on which no more is said than that."""
    with connection(fleet, protocol) as opened:
        opened.sendall(said)
        return opened.recv(65536)


def no_handshake(fleet: Fleet) -> bytes:
    """What comes on a connection on which not even TLS begins."""
    host, port = fleet.address.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as opened:
        opened.sendall(b"\x16\x03\x01")
        return opened.recv(65536)


def slow_message(fleet: Fleet) -> str:
    """What is said to a message over gRPC that never comes."""
    with channel(fleet.address, fleet.administrator.credentials) as opened:
        # As many as there are: none comes.
        nothing: queues.SimpleQueue[bytes] = queues.SimpleQueue()
        call = opened.stream_unary(SUBMIT)
        return refused(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: call(iter(nothing.get, None), timeout=PATIENCE))


@pytest.fixture(scope="module", autouse=True)
def sent_slowly(fleet: Fleet) -> Iterator[list[Future[bytes | str]]]:
    """What is said to those who send slowly, beside all other tests: they take the server's patience."""
    head = b"POST /v1/job/submit HTTP/1.1\r\nhost: x\r\n"
    with ThreadPoolExecutor() as pool:
        yield [
            pool.submit(slow, fleet, "http/1.1", head),
            pool.submit(slow, fleet, "http/1.1", head + b"content-length: 1000\r\n\r\n{"),
            pool.submit(no_handshake, fleet),
            pool.submit(slow_message, fleet),
        ]


def issued(directory: Path, authority: Path, key: Path, days: int, name: str = "administrator") -> Path:
    """An administrator's certificate by that authority, for so many days from now."""
    at = directory / f"{name}-{days}"
    made = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    run([*made, "-keyout", f"{at}.key", "-out", f"{at}.csr", "-subj", f"/O=pumice:administrators/CN={name}"])
    uses = directory / "uses"
    uses.write_text("extendedKeyUsage=clientAuth\n")
    signed = ["openssl", "x509", "-req", "-in", f"{at}.csr", "-CA", authority, "-CAkey", key, "-days", str(days)]
    run([*signed, "-extfile", uses, "-out", f"{at}.crt"])
    return at


def run(command: list[object]) -> None:
    """Runs a program that has to succeed."""
    made = subprocess.run(list(map(str, command)), check=False, capture_output=True, timeout=DEADLINE)
    assert made.returncode == 0, made.stderr.decode()


def test_certificates_that_are_over_or_of_others_are_refused(fleet: Fleet, queue: str, tmp_path: Path) -> None:
    pki = fleet.data_dir / "pki"
    foreign = tmp_path / "foreign"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=pumice",
    ]
    run([*made, "-keyout", f"{foreign}.key", "-out", f"{foreign}.crt", "-days", "10"])

    def asks(at: Path) -> int:
        tls = ssl.create_default_context(cadata=fleet.administrator.authority.decode())
        tls.load_cert_chain(f"{at}.crt", f"{at}.key")
        with connection(fleet, "http/1.1", tls) as opened:
            opened.sendall(f"GET /v1/queue/{queue} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            return int(rest(opened).split()[1])

    assert asks(issued(tmp_path, pki / "ca.crt", pki / "ca.key", 1)) == 200
    for refused_one, alert in (
        (issued(tmp_path, pki / "ca.crt", pki / "ca.key", -1), "CERTIFICATE_EXPIRED"),
        (issued(tmp_path, Path(f"{foreign}.crt"), Path(f"{foreign}.key"), 1, "foreign"), "UNKNOWN_CA|DECRYPT_ERROR"),
    ):
        with pytest.raises(ssl.SSLError, match=alert):
            asks(refused_one)


def test_people_are_no_executors(fleet: Fleet, queue: str) -> None:
    mallory = fleet.identity("--user", "mallory", "--group", "pumice:executor")
    with channel(fleet.address, mallory.credentials) as opened:
        session = opened.stream_stream("/pumice.fleet.v1.Executors/Session")
        said = refused(grpc.StatusCode.PERMISSION_DENIED, lambda: list(session(iter([b""]), timeout=DEADLINE)))
    assert said == "mallory is no executor: execute_jobs allows it"


def test_whoever_sends_slowly_is_not_waited_for(sent_slowly: list[Future[bytes | str]], queue: str) -> None:
    head, body, handshake, message = (one.result() for one in sent_slowly)
    assert head == b"" or head.startswith(b"HTTP/1.1 408"), head
    assert body.startswith(b"HTTP/1.1 408") and b"the body was not there after 30 s" in body
    assert handshake == b""
    assert message == "the request was not there after 30 s: send it faster, or in parts"
