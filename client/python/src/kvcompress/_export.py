# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Reports as plain values, and as tables of pandas."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]


class Exportable:
    """A dataclass that can be written as JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain values, for `json.dumps` and the like.

        Returns:
            A new dictionary; dataclasses within are dictionaries too, tuples are lists, and
            levels of quality are their names.
        """
        values: dict[str, Any] = plain(self)
        return values


def plain(value: object) -> Any:  # noqa: ANN401
    """Returns a value made of dictionaries, lists, text, numbers, booleans and None."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def frame(rows: Iterable[Exportable]) -> "pandas.DataFrame":
    """Returns a table with a row for each report; the fields of dataclasses within are columns.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("a table needs pandas: pip install pandas") from error
    return pandas.DataFrame([_flat(row.to_dict()) for row in rows])


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the items of a mapping, and of those within in their places."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= value if isinstance(value, Mapping) else {name: value}
    return flat
