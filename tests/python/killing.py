"""Processes that are killed at random moments, and started again as an init system would."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from fleet import Program
from postgres import Postgres

# Roles of what is killed, and how often each is chosen.
ROLES = {"leader": 5, "follower": 3, "executor": 5, "cluster": 5, "postgres": 3}
# Two at a time, of all times.
TWO = 0.2
# Between two times on average, and before something that is killed is started again at most, seconds.
PAUSE = 2.0
DOWN_MAX = 3.0
# All are ready so long after the last of them was killed, seconds.
READY_WITHIN = 120.0
# What Postgres says of who leads, as far as somebody does.
LEADER = "SELECT holder FROM head WHERE until > EXTRACT(EPOCH FROM clock_timestamp()) * 1000"


class Part:
    """One of the processes."""

    def __init__(self, role: str, program: Program | Postgres) -> None:
        self.role = role
        self.program = program
        self.began = 0.0
        self._ready = threading.Event()

    def start(self) -> None:
        """Starts it, without waiting for anything."""
        self.began, self._ready = time.monotonic(), threading.Event()
        if isinstance(self.program, Postgres) or self.role == "executor":
            self.program.start()
        else:
            self.program.serve()
            threading.Thread(target=self._listen, args=(self.program, self._ready), daemon=True).start()

    def adopt(self) -> None:
        """Takes over one that runs already, and is ready."""
        self._ready.set()

    @staticmethod
    def _listen(program: Program, ready: threading.Event) -> None:
        # One that is killed says nothing.
        with suppress(AssertionError, ValueError):
            program.line()
            ready.set()

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not killed since."""
        return self.program.process is not None

    def is_ready(self) -> bool:
        """Whether it was ready since it was last started."""
        if isinstance(self.program, Postgres) and self.is_running and not self._ready.is_set() and self.program.is_ready():
            self._ready.set()
        return self.is_running and (self.role == "executor" or self._ready.is_set())


class Killer:
    """Kills so many processes, at moments and in an order drawn from a seed."""

    def __init__(
        self, seed: int, postgres: Postgres, servers: list[Program], clusters: list[tuple[Program, Program]]
    ) -> None:
        self._random = random.Random(seed)
        self.postgres = Part("postgres", postgres)
        self.servers = [Part("server", server) for server in servers]
        self.others = [
            Part(role, program) for both in clusters for role, program in zip(("cluster", "executor"), both, strict=True)
        ]
        self._due: list[tuple[float, Part]] = []
        # When Postgres was last seen to be away.
        self._away = 0.0
        self.killed: Counter[str] = Counter()
        self.pairs = 0
        self.failed_starts = 0

    @property
    def parts(self) -> list[Part]:
        """All of them."""
        return [self.postgres, *self.servers, *self.others]

    def run(self, kills: int, look: Callable[[], None]) -> None:
        """Kills so many, and ends when all run again. `look` is called all along."""
        left, at = kills, time.monotonic() + self._pause()
        while left or not all(part.is_ready() for part in self.parts):
            down = [str(part.program) for part in self.parts if not part.is_ready()]
            assert time.monotonic() < at + READY_WITHIN, f"not ready after {READY_WITHIN:.0f} s: {down}"
            look()
            self.keep()
            if left and time.monotonic() >= at:
                for part, role in self._choose(min(left, 2 if self._random.random() < TWO else 1)):
                    part.program.crash()
                    self.killed[role] += 1
                    left -= 1
                    down = self._random.choice((0.0, self._random.uniform(0, DOWN_MAX)))
                    self._due.append((time.monotonic() + down, part))
                at = time.monotonic() + self._pause()
            time.sleep(0.02)

    def keep(self) -> None:
        """Starts what is due. Fails when something ended by itself that has no reason to."""
        now = time.monotonic()
        for entry in [entry for entry in self._due if entry[0] <= now]:
            self._due.remove(entry)
            entry[1].start()
        if not self.postgres.is_ready():
            self._away = now
        for part in self.parts:
            code = part.program.ended()
            if code is None:
                continue
            # Postgres waits for the remains of the one before, and a server that starts needs Postgres.
            needs = part is self.postgres or (part in self.servers and self._away >= part.began)
            said = f"{part.program} ended by itself with {code} and said:\n{part.program.tail()}"
            assert needs and not part.is_ready(), said
            part.program.crash()
            self.failed_starts += 1
            self._due.append((now + 0.1, part))

    def _pause(self) -> float:
        return self._random.expovariate(1 / PAUSE)

    def _choose(self, count: int) -> list[tuple[Part, str]]:
        running = [(part, self._role(part)) for part in self.parts if part.is_running]
        chosen: list[tuple[Part, str]] = []
        while running and len(chosen) < count:
            [role] = self._random.choices(list(ROLES), list(ROLES.values()))
            # Where nobody leads, or all of a kind are down, it is another's turn.
            found = [one for one in running if one[1] == role] or running
            one = self._random.choice(found)
            running.remove(one)
            chosen.append(one)
        self.pairs += len(chosen) == 2
        return chosen

    def _role(self, part: Part) -> str:
        if part.role != "server":
            return part.role
        holder = self.leader()
        return "leader" if holder is not None and holder.endswith(f"_{part.program.pid}") else "follower"

    def leader(self) -> str | None:
        """Who leads, as a name and the number of a process."""
        assert isinstance(self.postgres.program, Postgres)
        return self.postgres.program.ask(LEADER) if self.postgres.is_running else None
