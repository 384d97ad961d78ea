# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Messages of the API from plain values, by the descriptors that protoc wrote."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

_Message = TypeVar("_Message", bound=Message)
_TYPES = {
    FieldDescriptor.CPPTYPE_STRING: ("a string", "strings"),
    FieldDescriptor.CPPTYPE_BOOL: ("a boolean", "booleans"),
    FieldDescriptor.CPPTYPE_DOUBLE: ("a number", "numbers"),
    FieldDescriptor.CPPTYPE_FLOAT: ("a number", "numbers"),
}
_INTEGERS = ("an integer", "integers")


def filled(
    kind: type[_Message], values: Mapping[str, object], argument: str | None = None
) -> _Message:
    """Returns a message with these fields.

    Args:
        kind: The class of the message.
        values: By name of the field; None leaves a field out. The value of an enumeration is its
            name in lower case without the prefix, such as `fast` for `EFFORT_FAST`.
        argument: What the caller calls the message, for errors; None where its fields are
            arguments themselves.

    Raises:
        TypeError: A value has another type than its field.
        ValueError: An enumeration has no such value, or a value is out of range.
    """
    message = kind()
    # The types of protobuf's two implementations differ, and so do the arguments of messages.
    make: Any = kind
    fields: Mapping[str, Any] = kind.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        if value is None:
            continue
        field = fields[name]
        called = name if argument is None else f"{name} of {argument}"
        if field.enum_type is not None:
            value = _number(field.enum_type, value, called)
        try:
            # One by one: errors of protobuf do not say of which field they are.
            message.MergeFrom(make(**{name: value}))
        except TypeError as error:
            raise TypeError(f"{called} is {_wanted(field)}, not {_found(value)}") from error
        except ValueError as error:
            raise ValueError(f"{called}: {error}") from error
    return message


def enum_numbers(enum: EnumDescriptor) -> dict[str, int]:
    """Returns the values of an enumeration by the names that callers use, in its order."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {
        value.name.removeprefix(prefix).lower(): value.number
        for value in enum.values
        if value.number != 0
    }


def _number(enum: EnumDescriptor, value: object, called: str) -> int:
    """Returns the value of that name."""
    numbers = enum_numbers(enum)
    if not isinstance(value, str) or value not in numbers:
        raise ValueError(f"{called} is one of {', '.join(numbers)}, not {value!r}")
    return numbers[value]


def _wanted(field: FieldDescriptor) -> str:
    """Names the type of a field."""
    if field.message_type is not None:
        if not field.message_type.GetOptions().map_entry:
            return f"a {field.message_type.name}"
        key, value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        return f"a mapping of {_type(key)[1]} to {_type(value)[1]}"
    return f"a sequence of {_type(field)[1]}" if field.is_repeated else _type(field)[0]


def _type(field: FieldDescriptor) -> tuple[str, str]:
    """Names the type of one value and of several."""
    return _TYPES.get(field.cpp_type, _INTEGERS)


def _found(value: object) -> str:
    """Names the type of a value and of what is in it, never the content."""
    name = type(value).__name__
    if isinstance(value, Mapping) and value:
        return f"{name} of {_types(value)} to {_types(value.values())}"
    return f"{name} of {_types(value)}" if isinstance(value, list | tuple) and value else name


def _types(values: Iterable[object]) -> str:
    """Names the types of several values."""
    return " and ".join(sorted({type(value).__name__ for value in values}))
