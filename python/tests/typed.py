"""What type checkers know of the library: checked by mypy, never run."""

from __future__ import annotations

from concurrent.futures import Executor as StandardExecutor
from typing import assert_type

import pumice


@pumice.task(cpu=2, memory="4Gi", on_oom=pumice.grow(1.5, "64Gi"))
def area(width: int, height: float = 1.0) -> float:
    return width * height


@pumice.task
def bare(name: str) -> bytes:
    return name.encode()


async def results_have_the_types_of_the_function() -> None:
    assert_type(area(2, height=3.0), float)
    assert_type(area.submit(2), pumice.Future[float])
    assert_type(await area.submit(2), float)
    assert_type(bare.map(["a"]).results(), list[bytes])
    assert_type(await bare.map(["a"], min_success=0.99, chunk="auto"), list[bytes])
    for value in bare.map(["a"]):
        assert_type(value, bytes)
    async for done in bare.map(["a"]).as_completed():
        assert_type(done.value, bytes)
    assert_type(bare.map(["a"]).failed[0].run_local(), bytes)


def an_executor_is_one() -> None:
    executor: StandardExecutor = pumice.Executor(4, on="local", memory="1Gi")
    assert_type(pumice.Executor().submit(len, "abc"), pumice.Future[int])
    executor.shutdown()


def mistakes_are_found() -> None:
    area.submit("wide")  # type: ignore[arg-type]
    bare("a", "b")  # type: ignore[call-arg]
    bare.options(colour="red")  # type: ignore[call-arg]
