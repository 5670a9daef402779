"""Platforms that several files of tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from machine import Platform


@pytest.fixture(scope="session")
def root() -> Iterator[Platform]:
    """A platform that root runs as a service of the machine, with control groups of its own."""
    platform = Platform("pumice", Path("/var/lib/pumice"), "Delegate=yes")
    platform.up()
    yield platform
    platform.down()
