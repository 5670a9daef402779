"""A Postgres in a directory of its own, reached by a socket there: Debian's, installed if it may be."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from deadline import DEADLINE, until

# Who it runs as where the tests run as root, which it refuses.
USER = "nobody"
PACKAGE = "postgresql"


class Postgres:
    """A server that can be killed and started again on the same data."""

    def __init__(self) -> None:
        # Where its user may go, with a name that is short enough for a socket.
        self.directory = directory = Path(tempfile.mkdtemp(prefix="pumice-postgres-"))
        self.said = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._programs = programs()
        self._user = USER if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(directory, self._user)
        command = [self._programs / "initdb", "--auth=trust", "--username=postgres", "--no-sync", "-D", directory / "data"]
        made = subprocess.run(command, check=False, capture_output=True, **self._as())
        assert made.returncode == 0, made.stderr.decode()

    def __str__(self) -> str:
        return f"Postgres in {self.directory}"

    @property
    def url(self) -> str:
        """Its address."""
        return f"postgres://postgres@localhost/postgres?host={self.directory}"

    def start(self) -> None:
        """Starts it, without waiting for anything."""
        assert self.process is None
        command = [
            self._programs / "postgres",
            "-D",
            self.directory / "data",
            "-k",
            self.directory,
            "-c",
            "listen_addresses=",
        ]
        with self.said.open("a") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, **self._as())

    def is_ready(self) -> bool:
        """Whether it answers."""
        command = [self._programs / "pg_isready", "-q", "-h", self.directory]
        return subprocess.run(command, check=False, capture_output=True, timeout=DEADLINE).returncode == 0

    def ask(self, sql: str) -> str | None:
        """What a query gives, in text; nothing where it does not answer."""
        command = [self._programs / "psql", "-h", self.directory, "-U", "postgres", "-Atc", sql]
        asked = subprocess.run(command, check=False, capture_output=True, timeout=DEADLINE, text=True)
        return asked.stdout.strip() if asked.returncode == 0 else None

    def tail(self) -> str:
        """The end of what it said."""
        return self.said.read_text()[-4000:] if self.said.exists() else ""

    def ended(self) -> int | None:
        """Its exit code, where it has ended by itself. So it does while processes of one that was killed are left."""
        return None if self.process is None else self.process.poll()

    def crash(self) -> None:
        """Kills the first of its processes without a chance to clean up. The others end when they see it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def end(self) -> None:
        """Ends it at once, if it runs, and removes everything."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(DEADLINE)
            self.process = None
        # Those of one that was killed are a moment behind.
        until(lambda: not self._has_processes())
        shutil.rmtree(self.directory)

    def _has_processes(self) -> bool:
        data = str(self.directory / "data")
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "cwd") == data:
                    return True
            except OSError:
                continue
        return False

    def _as(self) -> dict:
        if self._user is None:
            return {"cwd": "/"}
        entry = pwd.getpwnam(self._user)
        return {"cwd": "/", "user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def programs() -> Path:
    """Where its programs are. Debian keeps them out of the search path, by version."""
    found = _found()
    if found is None:
        assert os.geteuid() == 0, f"tests need {PACKAGE}: apt-get install {PACKAGE}"
        script = f"apt-get update -qq && apt-get install -qq -y --no-install-recommends {PACKAGE}"
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, env=environment)
        found = _found()
        assert found is not None, f"{PACKAGE} was installed, and has no initdb"
    return found


def _found() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    searched = shutil.which("initdb")
    if versions:
        return versions[-1].parent
    return Path(searched).parent if searched else None
