"""The values of a map as one table, and how its records went as another; pandas and pyarrow are imported when asked for."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import MissingExtension
from .items import Item

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["arrow", "frame", "status_arrow", "status_frame"]


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingExtension("to_pandas needs pandas: pip install pumice[pandas]") from error
    return pandas


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtension("to_arrow needs pyarrow: pip install pumice[arrow]") from error
    return pyarrow


def _columns(value: Any) -> dict[str, Any]:
    """A value as columns: a mapping or a record by its names, anything else as `value`."""
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return {"value": value}


def frame(items: Sequence[Item[Any]]) -> pandas.DataFrame:
    """The values with their keys as index."""
    pandas = _pandas()
    keys = [item.key for item in items]
    values = [item.value for item in items]
    if values and all(isinstance(value, pandas.DataFrame) for value in values):
        return pandas.concat(values, keys=keys, names=["key"])  # type: ignore[no-any-return]
    index = pandas.Index(keys, name="key", dtype=object)
    if values and all(isinstance(value, pandas.Series) for value in values):
        table = pandas.DataFrame(values)
        table.index = index
        return table  # type: ignore[no-any-return]
    return pandas.DataFrame([_columns(value) for value in values], index=index)  # type: ignore[no-any-return]


def arrow(items: Sequence[Item[Any]]) -> pyarrow.Table:
    """The values below each other, with a column `key`."""
    pyarrow = _pyarrow()
    values = [item.value for item in items]
    if values and all(isinstance(value, pyarrow.Table) for value in values):
        tables = [
            value.add_column(0, "key", pyarrow.array([item.key] * value.num_rows, pyarrow.string()))
            for item, value in zip(items, values, strict=True)
        ]
        return pyarrow.concat_tables(tables, promote_options="default")
    if values and all(type(value).__name__ in ("DataFrame", "Series") for value in values):
        return pyarrow.Table.from_pandas(frame(items).reset_index(), preserve_index=False)
    return pyarrow.Table.from_pylist([{"key": item.key, **_columns(item.value)} for item in items])


def _status(item: Item[Any]) -> dict[str, Any]:
    failure = getattr(item.error, "failure", None)
    return {
        "key": item.key,
        "state": item.state.value,
        "attempt": item.attempt,
        "from_store": item.from_store,
        "node": item.node,
        "started": None if item.started is None else datetime.datetime.fromtimestamp(item.started, datetime.UTC),
        "seconds": item.seconds,
        "max_rss": item.max_rss,
        "oom": failure.oom if failure is not None else False,
        "error": None if item.error is None else failure.message if failure is not None else str(item.error),
    }


def status_frame(items: Sequence[Item[Any]]) -> pandas.DataFrame:
    """How each record went, with the keys as index."""
    return _pandas().DataFrame([_status(item) for item in items]).set_index("key")  # type: ignore[no-any-return]


def status_arrow(items: Sequence[Item[Any]]) -> pyarrow.Table:
    """How each record went."""
    return _pyarrow().Table.from_pylist([_status(item) for item in items])
