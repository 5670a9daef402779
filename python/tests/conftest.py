"""What the tests share: a pool of two processes, and a fake back end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import pumice
from pumice.fake_backend import FakeBackend
from pumice.machine import LocalBackend

os.environ["PYTHONPATH"] = str(Path(pumice.__file__).parent.parent)
"""For the programs tests start."""


@pytest.fixture(scope="session", autouse=True)
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for what is the user's own, such as the key of kept results."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalBackend]:
    """Real processes, which live as long as the tests."""
    backend = pumice.local(2)
    yield backend
    backend.close()


@pytest.fixture
def here(pool: LocalBackend) -> Iterator[LocalBackend]:
    """Real processes, in use."""
    with pumice.use(pool):
        yield pool


@pytest.fixture
def fake() -> Iterator[FakeBackend]:
    """A fake back end, in use."""
    backend = pumice.fake()
    with pumice.use(backend):
        yield backend
