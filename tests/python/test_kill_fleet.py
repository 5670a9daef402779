"""A few of the kills that `make kill-fleet` does."""

from __future__ import annotations

from kill_fleet import asked, kill


def test_a_fleet_of_which_anything_is_killed_loses_nothing() -> None:
    kills, seed = asked(6)
    print(kill(kills, seed, servers=2, clusters=2))
