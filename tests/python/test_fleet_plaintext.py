"""The fleet without TLS on loopback, as Armada's clients in Go want it: every call packed by gzip, with a password."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from armada_client.client import ArmadaClient

from deadline import DEADLINE
from fleet import BINARIES, JOB_SET, Fleet, follow, have_ended, job, refused, stories, submit

PASSWORD = "correct horse"


def hashed(secret: str) -> str:
    """What the configuration knows of a password."""
    command = [str(BINARIES / "pumice"), "fleet", "hash"]
    done = subprocess.run(command, input=secret, stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, str]]:
    """All of a small fleet in one process, and where it answers without TLS."""
    directory = tmp_path_factory.mktemp("plain")
    config = directory / "fleet.yaml"
    config.write_text(
        "auth:\n"
        "  permissionGroupMapping:\n"
        "    {create_queue: [operators], submit_any_jobs: [operators], watch_all_events: [operators]}\n"
        f"  users: [{{name: ada, groups: [operators], password: {hashed(PASSWORD)!r}}}]\n"
    )
    flags = ["--clusters", "1", "--nodes", "2", "--plaintext", "127.0.0.1:0", "--config", str(config)]
    fleet = Fleet(directory, *flags, verb="up")
    try:
        fleet.start()
        assert fleet.program.process is not None
        assert fleet.program.process.stdout is not None
        line = fleet.program.process.stdout.readline()
        address = re.fullmatch(r"it answers without TLS at (127\.0\.0\.1:\d+), on this machine only\n", line)
        assert address, line
        yield fleet, address[1]
    finally:
        fleet.program.end()


class Password(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Says in each call who calls, as grpc-go does over connections without TLS, too."""

    def __init__(self, name: str, password: str) -> None:
        said = base64.b64encode(f"{name}:{password}".encode()).decode()
        self.said = ("authorization", f"Basic {said}")

    def _intercept(self, continuation, details, request):
        details = details._replace(metadata=[*(details.metadata or []), self.said])
        return continuation(details, request)

    intercept_unary_unary = _intercept
    intercept_unary_stream = _intercept


def client(address: str, password: str) -> ArmadaClient:
    """Armada's client as its clients in Go are."""
    options = [("grpc.enable_http_proxy", 0)]
    opened = grpc.insecure_channel(address, options, compression=grpc.Compression.Gzip)
    return ArmadaClient(grpc.intercept_channel(opened, Password("ada", password)))


def test_jobs_go_through_without_tls_and_packed(plain: tuple[Fleet, str]) -> None:
    _, address = plain
    ada = client(address, PASSWORD)
    ada.create_queue(ada.create_queue_request(name="packed", priority_factor=1.0))
    ids = submit(ada, "packed", *(job(lasts="100ms") for _ in range(20)))
    ended = stories(follow(ada, "packed", JOB_SET, have_ended(ids)))
    assert {story[-1] for story in ended.values()} == {"succeeded"}


def test_who_calls_without_tls_has_to_say_who_it_is(plain: tuple[Fleet, str]) -> None:
    _, address = plain
    for strange in (client(address, "wrong"), ArmadaClient(grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]))):
        refused(grpc.StatusCode.UNAUTHENTICATED, lambda strange=strange: strange.get_queue("packed"))


def test_other_addresses_are_refused(tmp_path: Path) -> None:
    command = [str(BINARIES / "pumice"), "fleet", "server", "--data-dir", str(tmp_path), "--plaintext", "0.0.0.0:0"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 2
    assert "0.0.0.0 is no address of loopback" in done.stderr
    assert not list(tmp_path.iterdir())
