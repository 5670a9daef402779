"""Ways out of a pod, tried on this kernel: `crates/node/tests/ways_out`."""

from __future__ import annotations

import pytest

from machine import run


def test_each_way_out_is_held_by_its_control(capsys: pytest.CaptureFixture[str]) -> None:
    # It prints the whole table, and fails by itself.
    printed = run("/tests/ways_out", "--nocapture")
    with capsys.disabled():
        print("\n" + "\n".join(line for line in printed.splitlines() if "vacuous" in line or " rows count" in line))
