"""What the stand-ins share: lines of text between programs that begin at different times and find each other by name."""

import socket
import time

SECONDS = 90


def call(host, port):
    """Connects to somebody who may begin later, and whose name may be known later still."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            peer = socket.create_connection((host, int(port)), timeout=10)
            peer.settimeout(None)
            return peer.makefile("rw")
        except OSError as error:
            if time.monotonic() > end:
                raise SystemExit(f"could not reach {host}:{port}: {error}")
            time.sleep(0.1)


def listen(host, port):
    """Listens at the address that this host's name stands for, so the name has to be right."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return socket.create_server((socket.gethostbyname(host), int(port)), backlog=64)
        except OSError as error:
            if time.monotonic() > end:
                raise SystemExit(f"could not listen at {host}:{port}: {error}")
            time.sleep(0.1)


def accept(server):
    return server.accept()[0].makefile("rw")


def say(peer, *words):
    print(*words, file=peer, flush=True)
