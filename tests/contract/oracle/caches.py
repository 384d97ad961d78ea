# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Synthetic caches, each with something that an encoder can get wrong."""

import numpy as np

from oracle.source import ITEM_SIZE, LARGEST, NUMBERS, Tensor, tensor, write

DTYPES = ("F32", "F16", "BF16")
MORE_DTYPES = tuple(dtype for dtype in NUMBERS if dtype not in DTYPES)
SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (0,),
    (1,),
    (1, 3, 0, 64),
    (7,),
    (31,),
    (32,),
    (33,),
    (63,),
    (64,),
    (65,),
    (127,),
    (129,),
    (3, 5, 7),
    (1, 2, 17, 64),
    (4095,),
    (4096,),
    (4097,),
    (2, 4096),
    (8191,),
    (3, 2777),
)


def shapes(dtype: str, seed: int = 0) -> bytes:
    """One tensor of every shape, normally distributed."""
    rng = np.random.default_rng(seed)
    return write(
        [
            tensor(f"t{index}", dtype, rng.standard_normal(shape) * 3, shape)
            for index, shape in enumerate(SHAPES)
        ]
    )


def mixed() -> bytes:
    """Types, roles, names and metadata of many kinds in one file."""
    rng = np.random.default_rng(1)
    names = ("layer_0_key", "layer_0_value", "layer_10_key", "layer_01_key", "layer_1_keys")
    more = (
        "layer_1234567890_key",
        "layer_123456789_value",
        "Schlüssel ☂ 😀",
        'a"b\\c/d',
        "\x7f\t",
    )
    tensors = [
        tensor(name, DTYPES[index % 3], rng.standard_normal((1, 2, 3 + index, 8)))
        for index, name in enumerate(names + more)
    ]
    return write(tensors, {"z": "last", "a": "ümläut ☂\n", "": "", "note": 'say "hi" \\ \x01'})


def values() -> bytes:
    """Groups at the edges of the arithmetic, in every type."""
    groups = {
        "zeros": np.zeros(130),
        "negative_zeros": np.full(65, -0.0),
        "zeros_but_one": np.eye(1, 200, 77)[0],
        "negative": -np.linspace(0, 5, 99),
        "ties": np.arange(-7, 7.5, 0.5).repeat(3),
        "ties_below": np.append(np.nextafter(np.float32(np.arange(-7, 7) + 0.5), np.float32(0)), 7),
        "ties_above": np.append(np.nextafter(np.float32(np.arange(-7, 7) + 0.5), np.float32(9)), 7),
        "scale_ties": np.repeat(7 * (1 + (2 * np.arange(8) + 1) * 2.0**-11), 128),
        "powers": 2.0 ** np.arange(-14, 15),
        "half_subnormal": np.arange(-40, 41) * 2.0**-24,
        "scale_subnormal": np.arange(-64, 65) * 2.0**-22,
        "scale_smallest": np.array([7, -7, 3.5, -3.5, 10, -10]) * 2.0**-24,
        "scale_to_zero": np.array([3.5, -3.5, 1]) * 2.0**-24,
        "scale_just_not_zero": np.array([3.51, -3.51, 1, -1]) * 2.0**-24,
        "scale_one_and_a_half": np.array([10.49, -10.49, 10.5, -10.5, 8, -8]) * 2.0**-24,
        "half_largest": np.array([65504, -65504, 32752, -9358, 9357, 1, 0]),
        "half_large": np.array([65472, -60000, 40000, 5000]),
    }
    tensors = [
        tensor(f"{name}.{dtype}", dtype, group)
        for name, group in groups.items()
        for dtype in DTYPES
    ]
    wide = {
        "subnormal": np.array([1, -1, 0x7FFFFF, 0x400000]) * 2.0**-149,
        "scale_large": np.array([456704.0, -456704.0, 229264.0, 1.0]),
        "scale_largest": np.array([458528.0, -458528.0, 229264.0, 1.0]),
        "scale_rounds_down": np.array([458639.0, -458639.0, 3e5]),
        "tiny_beside_huge": np.array([456704.0, 1e-30, -1e-38, 32000, 33000]),
    }
    for dtype in ("F32", "BF16"):
        tensors += [
            tensor(f"{name}.{dtype}", dtype, group)
            for name, group in wide.items()
            if not (dtype == "BF16" and name in ("scale_largest", "scale_rounds_down"))
        ]
    return write(tensors)


def bits(dtype: str, seed: int = 0) -> bytes:
    """Random bit patterns of finite values, a magnitude for each tensor."""
    rng = np.random.default_rng(seed)
    tensors = []
    for exponent in range(-30, 19, 3):
        numbers = rng.standard_normal(321) * 2.0**exponent
        most = LARGEST.get(dtype, 65504)
        numbers = np.clip(numbers, -most, most)
        tensors.append(tensor(f"e{exponent}", dtype, numbers))
    return write(tensors)


def scrambled() -> bytes:
    """A header in another order than the data, with whitespace, escapes and empty tensors."""
    first, second = np.arange(6, dtype="<f4").tobytes(), np.arange(5, dtype="<f2").tobytes()
    text = (
        b'{ "second" : {"shape":[5],"data_offsets":[24,34],"dtype":"F16"},\n'
        b'"e2":{"dtype":"BF16","shape":[0,4],"data_offsets":[24,24]},'
        b'"e1":{"dtype":"F32","shape":[0],"data_offsets":[24,24]},'
        b'"f\\u00efr\\u0073t":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},\t'
        b'"end":{"dtype":"F32","shape":[3,0],"data_offsets":[34,34]},'
        b'"__metadata__":{"b":"\\ud83d\\ude00","a":"\\/"}}   '
    )
    return len(text).to_bytes(8, "little") + text + first + second


def tiny() -> bytes:
    """Two tiny tensors: an artefact of a few hundred bytes."""
    return write(
        [
            tensor("layer_0_key", "F16", [0.5, -1.25, 3.0]),
            tensor("layer_0_value", "F32", [[1.0, -2.0], [0.25, 8.0]]),
        ]
    )


def heads() -> bytes:
    """Keys, values and others of four dimensions, with channels far from zero."""
    rng = np.random.default_rng(2)
    tensors = []
    for index, shape in enumerate(
        [(1, 2, 70, 64), (2, 1, 33, 80), (1, 1, 130, 7), (1, 3, 1, 16), (1, 1, 66, 1)]
    ):
        for part in ("key", "value", "other"):
            offset = 8 * rng.standard_normal(shape[-1])
            size = np.exp2(rng.uniform(-6, 4, (*shape[:3], 1)))
            numbers = rng.standard_normal(shape) * size + offset
            tensors.append(tensor(f"layer_{index}_{part}", DTYPES[index % 3], numbers))
    return write(tensors)


def attached(tokens: int = 70) -> bytes:
    """Keys and values of 8 and of 64 bits with what is no number: block tables, lengths."""
    rng = np.random.default_rng(3)
    tensors = []
    for index, dtype in enumerate(MORE_DTYPES):
        for part in ("key", "value"):
            offset = 4 * rng.standard_normal(64)
            numbers = rng.standard_normal((1, 2, tokens, 64)) * 0.5 + offset
            tensors.append(tensor(f"layer_{index}_{part}", dtype, numbers))
    table = np.arange(6 * tokens, dtype="<i8").reshape(6, tokens)
    tensors.append(Tensor("block_table", "I64", table.shape, table.tobytes()))
    tensors.append(Tensor("lengths", "I32", (3,), np.array([70, 0, -1], "<i4").tobytes()))
    for dtype, size in ITEM_SIZE.items():
        tensors.append(Tensor(f"any_{dtype}", dtype, (0,), b""))
        if dtype not in NUMBERS:
            tensors.append(Tensor(f"noise_{dtype}", dtype, (1, 1, 9, 8), rng.bytes(72 * size)))
            tensors.append(
                Tensor(f"zeros_{dtype}", dtype, (19 * tokens,), bytes(19 * tokens * size))
            )
    # A role does not make numbers of integers.
    tensors.append(Tensor("layer_9_key", "I8", (1, 1, 5, 8), rng.bytes(40)))
    return write(tensors)


def all_caches() -> dict[str, bytes]:
    """Every cache by name."""
    caches = {"mixed": mixed(), "values": values(), "scrambled": scrambled(), "tiny": tiny()}
    caches["heads"] = heads()
    caches["attached"] = attached()
    for dtype in NUMBERS:
        caches[f"shapes_{dtype}"] = shapes(dtype)
        caches[f"bits_{dtype}"] = bits(dtype)
    caches["nothing"] = write([])
    caches["metadata_only"] = write([], {"only": "this"})
    caches["one_empty"] = write([Tensor("e", "F16", (0,), b"")])
    return caches
