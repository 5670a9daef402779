"""joblib's parallel loops on a back end: `pumice.register_joblib()`, then `joblib.parallel_config(backend="pumice")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .backend import Backend
from .errors import MissingExtension

if TYPE_CHECKING:
    from .executor import Executor

__all__ = ["register_joblib"]


def register_joblib() -> None:
    """Make joblib know the back end "pumice"."""
    try:
        import joblib
        from joblib.parallel import AutoBatchingMixin, ParallelBackendBase
    except ImportError as error:
        raise MissingExtension("register_joblib needs joblib: pip install pumice[joblib]") from error

    class PumiceBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
        """Runs joblib's batches of calls through a `pumice.Executor`."""

        supports_retrieve_callback = True
        supports_timeout = True
        uses_threads = False
        supports_sharedmem = False

        def __init__(self, *, on: Backend | str | None = None, nesting_level: int | None = None, **asked: Any) -> None:
            super().__init__(nesting_level=nesting_level)
            self._on = on
            self._asked = asked
            self._executor: Executor | None = None
            self._slots = 1

        def effective_n_jobs(self, n_jobs: int) -> int:
            """How many calls run at a time; negative numbers count from what the back end has."""
            from .choice import current, resolve

            if n_jobs == 0:
                raise ValueError("n_jobs == 0 in Parallel has no meaning")
            if n_jobs is not None and n_jobs > 0:
                return int(n_jobs)
            backend = current() if self._on is None or isinstance(self._on, str) else resolve(self._on)[0]
            return max(1, (backend.slots or 1) + 1 + (n_jobs if n_jobs is not None else -1))

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
            """Make the executor."""
            from .executor import Executor

            slots = self.effective_n_jobs(n_jobs)
            self.parallel = parallel
            self._executor = Executor(slots, on=self._on, **self._asked)
            return slots

        def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Any:
            """Start a batch of calls."""
            if self._executor is None:
                raise RuntimeError("joblib has not configured this back end")
            future = self._executor.submit(func)
            if callback is not None:
                future.add_done_callback(callback)
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            """The values of a batch that has ended."""
            return out.result()

        def terminate(self) -> None:
            """Let the executor go."""
            if self._executor is not None:
                self._executor.shutdown(wait=False)
                self._executor = None

        def abort_everything(self, ensure_ready: bool = True) -> None:
            """End what runs; make a new executor if joblib goes on."""
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._executor = None
            if ensure_ready:
                self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)

    joblib.register_parallel_backend("pumice", PumiceBackend)
