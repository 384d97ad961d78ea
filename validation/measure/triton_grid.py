# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Runs Triton kernels of other packages on a CPU, all programs of a grid at once. Needs torch.

Triton's own interpreter runs one program after the other: minutes for a layer, where this takes
milliseconds. The kernels are the packages' own source, unchanged. Only what `tl` means is written
here, for the few operations that kernels of KV caches use: a value holds one row for each program.

Conversions to FP8 round to the nearest value and saturate, as the instructions of GPUs do.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Type:
    """A type of elements. torch computes little with 16 unsigned bits: they are held in 32."""

    stored: torch.dtype
    held: torch.dtype

    def is_fp8(self) -> bool:
        """Returns whether this is an 8-bit float."""
        return bool(self.stored == FP8)


TYPES = {
    "float32": Type(torch.float32, torch.float32),
    "float16": Type(torch.float16, torch.float16),
    "float8e4nv": Type(FP8, FP8),
    "int64": Type(torch.int64, torch.int64),
    "int32": Type(torch.int32, torch.int32),
    "uint16": Type(torch.int16, torch.int32),
    "uint8": Type(torch.uint8, torch.uint8),
}


def _cast(data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype == FP8:
        limit = torch.finfo(FP8).max
        return data.float().clamp(-limit, limit).to(FP8)
    return data.to(dtype)


class Value:
    """What a variable of a kernel holds in every program: [programs or 1, *its own shape]."""

    def __init__(self, data: torch.Tensor) -> None:
        """Takes the values, the programs first."""
        self.data = data

    @property
    def dtype(self) -> Type:
        """The type of elements."""
        return Type(self.data.dtype, self.data.dtype)

    def to(self, kind: Type, bitcast: bool = False) -> "Value":
        """Converts values, or takes their bits for values of another type."""
        if not bitcast:
            return Value(_cast(self.data, kind.held))
        if self.data.element_size() > kind.stored.itemsize:  # held in more bits than it has
            bits = self.data.to(torch.int16)
        else:
            bits = self.data
        bits = bits.view(kind.stored)
        return Value(bits.to(kind.held) & 0xFFFF if kind is TYPES["uint16"] else bits)

    def __getitem__(self, index: Any) -> "Value":
        """Adds axes, or takes a part."""
        return Value(self.data[(slice(None), *index)])

    def __bool__(self) -> bool:
        """Returns what all programs agree on; they may not go different ways."""
        one = bool(self.data.flatten()[0])
        if not bool((self.data.bool() == one).all()):
            raise NotImplementedError("programs of a grid take different branches")
        return one


def _aligned(values: Sequence[Any]) -> list[Any]:
    """Broadcasts values to the same number of axes behind the programs, as NumPy does."""
    axes = max((each.data.ndim for each in values if isinstance(each, Value)), default=1)
    return [
        each.data.reshape(len(each.data), *[1] * (axes - each.data.ndim), *each.data.shape[1:])
        if isinstance(each, Value)
        else each
        for each in values
    ]


def _lifted(function: Callable[..., torch.Tensor]) -> Callable[..., Value]:
    """Makes a function of tensors one of values."""
    return lambda *values: Value(function(*_aligned(values)))


def _operators() -> None:
    both = ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift", "and", "or")
    for name in (*both, *(f"r{name}" for name in both), "lt", "le", "gt", "ge", "eq", "ne", "neg"):
        if hasattr(torch.Tensor, f"__{name}__"):
            setattr(Value, f"__{name}__", _lifted(getattr(torch.Tensor, f"__{name}__")))


_operators()


class Pointer:
    """The address of an element of a tensor, in every program."""

    def __init__(self, tensor: torch.Tensor, offset: Any = 0) -> None:
        """Takes all elements of a storage, and which is pointed to."""
        self.tensor = tensor
        self.offset = offset

    def __add__(self, other: Any) -> "Pointer":
        """Moves on by elements."""
        return Pointer(self.tensor, other + self.offset)

    def places(self, mask: Any) -> tuple[torch.Tensor, Any]:
        """Returns the indices that are meant, 0 where a mask hides them, and the mask."""
        offset = self.offset
        if not isinstance(offset, Value):
            offset = Value(torch.tensor([offset]))
        places, shown = _aligned([offset, mask])
        return (places if shown is None else torch.where(shown, places, 0)).long(), shown


def load(pointer: Pointer, mask: Any = None, other: Any = 0) -> Value:
    """See tl.load."""
    places, shown = pointer.places(mask)
    found = pointer.tensor[places]
    return Value(found if shown is None else torch.where(shown, found, other))


def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
    """See tl.store."""
    places, shown, data = _aligned([Value(pointer.places(mask)[0]), mask, value])
    data = _cast(torch.as_tensor(data), pointer.tensor.dtype).expand(places.shape)
    if shown is not None:
        shown = shown.expand(places.shape)
        places, data = places[shown], data[shown]
    pointer.tensor[places] = data


def _reduced(function: Callable[..., torch.Tensor]) -> Callable[..., Value]:
    def reduce(value: Value, axis: int | None = None) -> Value:
        axes = range(1, value.data.ndim) if axis is None else [axis + 1]
        return Value(function(value.data, dim=tuple(axes)))

    return reduce


class Kernel:
    """A function that Triton would compile."""

    program: tuple[torch.Tensor, ...] = ()  # of the grid that runs

    def __init__(self, function: Callable[..., Any]) -> None:
        """Takes the source."""
        self.function = function

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Runs as a part of another kernel."""
        return self.function(*values, **named)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Returns what runs it on a grid."""

        def launch(*values: Any, **named: Any) -> None:
            sizes = grid(named) if callable(grid) else grid
            for option in ("num_warps", "num_stages"):  # of a GPU
                named.pop(option, None)
            every = torch.arange(math.prod(sizes))
            strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
            Kernel.program = tuple(
                every // stride % size for stride, size in zip(strides, sizes, strict=True)
            )
            self.function(*map(_pointed, values), **{k: _pointed(v) for k, v in named.items()})

        return launch


def _pointed(value: Any) -> Any:
    """Returns a pointer to a tensor; the tensor's storage is used, not a copy."""
    if not isinstance(value, torch.Tensor):
        return value
    whole = value.untyped_storage().nbytes() // value.element_size() - value.storage_offset()
    return Pointer(value.as_strided((whole,), (1,)))


def install(triton: ModuleType, tl: ModuleType) -> None:
    """Adds to two modules what kernels find in `triton` and `triton.language`.

    Args:
        triton: A stand-in for Triton that a package has for machines without a GPU.
        tl: The same for triton.language.
    """
    functions: dict[str, Any] = {
        "program_id": lambda axis: Value(Kernel.program[axis]),
        "arange": lambda start, end: Value(torch.arange(start, end)[None]),
        "zeros": lambda shape, dtype: Value(torch.zeros(1, *shape, dtype=dtype.held)),
        "full": lambda shape, value, dtype: Value(torch.full((1, *shape), value, dtype=dtype.held)),
        "reshape": lambda value, shape: Value(value.data.reshape(-1, *shape)),
        "cast": lambda value, kind: value.to(kind),
        "load": load,
        "store": store,
        "where": _lifted(torch.where),
        "abs": _lifted(torch.abs),
        "sqrt": _lifted(torch.sqrt),
        "clamp": _lifted(torch.clamp),
        "minimum": _lifted(lambda first, second: torch.minimum(first, _alike(first, second))),
        "maximum": _lifted(lambda first, second: torch.maximum(first, _alike(first, second))),
        "min": _reduced(torch.amin),
        "max": _reduced(torch.amax),
        "sum": _reduced(torch.sum),
    }
    for name, function in {**TYPES, **functions}.items():
        setattr(tl, name, function)
    for name, function in (("jit", Kernel), ("next_power_of_2", _power), ("language", tl)):
        setattr(triton, name, function)


def _alike(first: torch.Tensor, second: Any) -> torch.Tensor:
    """Returns a number as a tensor of the type of another value."""
    return second if isinstance(second, torch.Tensor) else torch.tensor(second, dtype=first.dtype)


def _power(value: int) -> int:
    return 1 << (value - 1).bit_length()
