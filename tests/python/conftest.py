"""The platform that the tests of the Python library share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pumice import _core
from up import Platform


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform that all tests share."""
    platform = Platform(tmp_path_factory.mktemp("platform"))
    try:
        platform.up()
        yield platform
    finally:
        platform.tear_down()


@pytest.fixture
def connection(platform: Platform) -> _core.Connection:
    """A connection to it."""
    return platform.connect()
