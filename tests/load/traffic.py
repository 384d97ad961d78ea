# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Calls of every kind, each with what must come of it."""

import json
import random
import struct
from collections.abc import Callable, Sequence

import numpy as np

import kvcompress
from kvcompress.payload import read

# Caches up to this size are also decoded by the reader that shares no code with the server.
_READ_AGAIN = 1 << 18
_CHANNELS = 64


class WrongResultError(Exception):
    """What came back is not what it must be: silent corruption."""


class GivenUpError(Exception):
    """Raised in the middle of a call, to give it up."""


def cache(draw: random.Random, size: int) -> bytes:
    """A safetensors file of about this size: layers of keys and values, with outliers."""
    dtype, width = draw.choice([("BF16", 2), ("F16", 2), ("F32", 4)])
    heads = draw.choice([1, 2, 3])
    layers = draw.randint(1, 4)
    tokens = max(1, size // (2 * layers * heads * _CHANNELS * width))
    count = heads * tokens * _CHANNELS
    noise = np.random.default_rng(draw.getrandbits(32))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts = []
    for index in range(2 * layers):
        values = noise.standard_normal((heads * tokens, _CHANNELS), dtype=np.float32) * 0.5
        values[:, :2] += 4
        if dtype == "BF16":
            parts.append((values.view(np.uint32) >> 16).astype("<u2").tobytes())
        else:
            parts.append(values.astype("<f2" if dtype == "F16" else "<f4").tobytes())
        name = f"layer_{index // 2}_{('key', 'value')[index % 2]}"
        begin = index * count * width
        header[name] = {
            "dtype": dtype,
            "shape": [1, heads, tokens, _CHANNELS],
            "data_offsets": [begin, begin + count * width],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def must(holds: bool, what: str) -> None:
    """Raises when a promise does not hold."""
    if not holds:
        raise WrongResultError(what)


class Traffic:
    """Draws calls for one client and makes them."""

    def __init__(self, client: kvcompress.Client, seed: int, largest: int) -> None:
        """Asks the server for its codecs."""
        info = client.server_info()
        self._client, self._largest = client, largest
        self._draw = random.Random(seed)  # noqa: S311
        self._codecs = [
            f"{codec.name}:{preset}" if preset else codec.name
            for codec in info.codecs
            for preset in (codec.presets or [""])
        ]
        self._endings = ["", *(f"+{name}" for name in info.byte_compressors)]
        self._kinds: Sequence[tuple[Callable[[], None], int]] = [
            (self.round_trip, 12),
            (self.measure, 3),
            (self.damaged, 3),
            (self.cut_short, 1),
            (self.bad_header, 2),
            (self.given_up, 3),
            (self.information, 1),
        ]

    def next(self) -> Callable[[], None]:
        """The next call; its name says of what kind it is."""
        calls, weights = zip(*self._kinds, strict=True)
        chosen: Callable[[], None] = self._draw.choices(calls, weights)[0]
        return chosen

    def _cache(self) -> bytes:
        size = 2 ** self._draw.uniform(10, np.log2(self._largest))
        return cache(self._draw, int(size))

    def _codec(self) -> str:
        codec = self._draw.choice(self._codecs)
        return codec + (self._draw.choice(self._endings) if self._draw.random() < 0.3 else "")

    def _compressed(self) -> tuple[bytes, bytes, kvcompress.CompressionResult, str]:
        data, codec = self._cache(), self._codec()
        result = self._client.compress(data, reconstruct=True, codec=codec)
        must(result.artefact is not None and result.reconstructed is not None, "both come back")
        return data, result.artefact or b"", result, codec

    def round_trip(self) -> None:
        """What is restored is what compression said it would be; exact codecs are exact."""
        data, artefact, result, codec = self._compressed()
        restored = self._client.decompress(artefact).safetensors
        must(restored is not None, "a cache comes back")
        must(restored == result.reconstructed, f"{codec}: restored is what was promised")
        must(result.report.compressed_size_bytes == len(artefact), "the size is the size")
        if codec.partition("+")[0] == "lossless":
            must(restored == data, "lossless means lossless")
        if len(data) <= _READ_AGAIN:
            again, arrays = read(artefact), kvcompress.load_arrays(restored or b"")[0]
            must(again.keys() == arrays.keys(), "the NumPy reader finds the same tensors")
            for name, array in arrays.items():
                same = np.asarray(array).tobytes() == np.asarray(again[name]).tobytes()
                must(same, f"{codec}: the NumPy reader decodes {name} to the same")

    def measure(self) -> None:
        """Figures, and no artefact."""
        report = self._client.measure(self._cache(), codec=self._codec())
        must(report.compressed_size_bytes > 0, "a measured size")

    def damaged(self) -> None:
        """A flipped bit, anywhere, is found."""
        _, artefact, _, codec = self._compressed()
        position = self._draw.randrange(len(artefact))
        bad = bytearray(artefact)
        bad[position] ^= 1 << self._draw.randrange(8)
        try:
            self._client.decompress(bytes(bad))
        except (kvcompress.DataLossError, kvcompress.FailedPreconditionError):
            return
        raise WrongResultError(f"{codec}: a bit of byte {position} was flipped, and nobody saw")

    def cut_short(self) -> None:
        """So is an artefact that ends early."""
        _, artefact, _, codec = self._compressed()
        length = self._draw.randrange(len(artefact))
        try:
            self._client.decompress(artefact[:length])
        except (kvcompress.DataLossError, kvcompress.FailedPreconditionError):
            return
        raise WrongResultError(f"{codec}: cut to {length} bytes, and nobody saw")

    def bad_header(self) -> None:
        """A file that lies about itself is refused."""
        data = bytearray(self._cache())
        fault = self._draw.randrange(3)
        if fault == 0:
            data[:8] = struct.pack("<Q", self._draw.getrandbits(63))
        elif fault == 1:
            del data[-1]
        else:
            data = data.replace(b'"shape":[1,', b'"shape":[2,', 1)
        try:
            self._client.compress(bytes(data))
        except (kvcompress.InvalidArgumentError, kvcompress.OutOfRangeError):
            return
        raise WrongResultError(f"a file with fault {fault} was taken")

    def given_up(self) -> None:
        """A call that its client leaves in the middle."""
        data = self._cache()
        stop = self._draw.uniform(0, len(data))
        sent = 0

        def advance(count: int) -> None:
            nonlocal sent
            sent += count
            if sent >= stop:
                raise GivenUpError

        try:
            self._client.compress(data, progress=advance, codec=self._codec())
        except GivenUpError:
            return

    def information(self) -> None:
        """What operators ask."""
        must(self._client.self_test("int4").passed, "the self-test passes")
