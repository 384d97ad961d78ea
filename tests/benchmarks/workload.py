# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The input of the benchmark, and each thing that it measures as a function."""

import ctypes
import importlib
import importlib.metadata
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CHANNELS = 64
DTYPES = {"F32": 0, "F16": 1, "BF16": 2}
ROLES = {"none": 0, "key": 1, "value": 2}
# For the entropy coders alone: symbols of a Gaussian of two steps, which is table 19 of ecsq and
# about what the preset contract has, in pieces that fit the caches of both coders.
RANS_TABLE = 19
RANS_PIECE = 1 << 18
# RANS_ORDER_X32 of htscodecs, with order 0.
HTSCODECS_X32 = 4


@dataclass(frozen=True)
class Shape:
    """The tensors [n, heads, tokens, CHANNELS] that codecs get."""

    heads: int
    tokens: int
    n: int = 0  # as many as there are values for

    def elements(self, count: int) -> int:
        """Of one tensor, of `count` values."""
        one = self.heads * self.tokens * CHANNELS
        return one * (self.n or count // one)


# Not where the types are checked.
zstandard = importlib.import_module("zstandard")


def load_ggml() -> ctypes.CDLL:
    """The ggml library that the wheel of pywhispercpp carries."""
    folder = Path(sysconfig.get_path("platlib")) / "pywhispercpp.libs"
    found = sorted(folder.glob("libggml-base-*.so*"))
    if not found:
        raise SystemExit(f"no libggml-base in {folder}")
    return ctypes.CDLL(str(found[0]))


def load_htscodecs() -> ctypes.CDLL:
    """Debian's package libhtscodecs2."""
    library = ctypes.CDLL("libhtscodecs.so.2")
    for name in ("rans_compress_to_4x16", "rans_uncompress_to_4x16"):
        getattr(library, name).restype = ctypes.c_void_p
    library.htscodecs_version.restype = ctypes.c_char_p
    return library


def make_values(count: int) -> NDArray[np.float32]:
    """Like keys: channels that move together, with offsets, some of them large."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(count, dtype=np.float32).reshape(-1, CHANNELS)
    offsets = rng.standard_normal(CHANNELS, dtype=np.float32)
    offsets[::16] *= 6
    values += offsets
    together = rng.standard_normal((len(values), 8), dtype=np.float32)
    values += 0.5 * (together @ rng.standard_normal((8, CHANNELS), dtype=np.float32))
    return values.reshape(-1)


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to nearest even."""
    bits = values.view(np.uint32)
    rounded: NDArray[np.uint16] = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return rounded


class Workload:
    """Owns inputs and outputs. Functions that decode need their encoders run before."""

    def __init__(self, library: Path, mib: int, kernels: str) -> None:
        """Loads the library and the peers, and makes `mib` MiB of binary32."""
        self.library = ctypes.CDLL(str(library))
        self.library.kvb_sets.restype = ctypes.c_char_p
        for name in ("kvb_encode", "kvb_codec_encode", "kvb_rans_encode"):
            getattr(self.library, name).restype = ctypes.c_int64
        self.ggml = load_ggml()
        self.ggml_version = "pywhispercpp " + importlib.metadata.version("pywhispercpp")
        self.htscodecs = load_htscodecs()
        self.htscodecs_version = "libhtscodecs " + self.htscodecs.htscodecs_version().decode()
        sets = self.library.kvb_sets().decode().split(",")
        self.kernels = kernels or sets[0]
        if not self.library.kvb_select(self.kernels.encode()):
            raise SystemExit(f"no kernels {self.kernels}, only {', '.join(sets)}")

        self.count = mib * 2**20 // 4
        values = make_values(self.count)
        self.sources: dict[str, NDArray[np.generic]] = {
            "F32": values,
            "F16": values.astype(np.float16),
            "BF16": to_bf16(values),
        }
        self.output = np.zeros(4 * self.count, np.uint8)
        self.payloads: dict[str, NDArray[np.uint8]] = {}
        self.pieces: dict[str, list[tuple[int, int]]] = {}  # where, and bytes
        self.ggml_payload = np.zeros(self.count // 32 * 18, np.uint8)
        self.zstd_payload = b""
        normal = np.random.default_rng(2).standard_normal(self.count, dtype=np.float32)
        self.symbols = np.clip(np.rint(2 * normal), -9, 9).astype(np.int8)
        self.octets = (self.symbols.view(np.uint8) + np.uint8(128)).astype(np.uint8)
        self.decoded_symbols = np.zeros(self.count, np.int8)
        self.rans_pieces: list[NDArray[np.uint8]] = []
        self.htscodecs_pieces: list[NDArray[np.uint8]] = []

    def size(self, dtype: str) -> int:
        """Bytes of the input in that type, or of symbols."""
        return self.symbols.nbytes if dtype == "symbols" else self.sources[dtype].nbytes

    def copy(self) -> None:
        """Copies the values as memcpy does."""
        ctypes.memmove(self.output.ctypes.data, self.sources["F32"].ctypes.data, self.size("F32"))

    def copy_bf16(self) -> None:
        """Copies half as many bytes."""
        ctypes.memmove(self.output.ctypes.data, self.sources["BF16"].ctypes.data, self.size("BF16"))

    def read(self) -> None:
        """Adds up all words."""
        self.library.kvb_read(self._source("F32"), ctypes.c_size_t(self.size("F32") // 8))

    def fill(self) -> None:
        """Writes as many bytes, all the same, as memset does."""
        ctypes.memset(self.output.ctypes.data, 0, self.size("F32"))

    def ggml_encode(self) -> None:
        """Four bits in groups of 32, each with a scale."""
        self.ggml.quantize_row_q4_0_ref(
            self._source("F32"), _pointer(self.ggml_payload), ctypes.c_int64(self.count)
        )

    def ggml_decode(self) -> None:
        """The reverse."""
        self.ggml.dequantize_row_q4_0(
            _pointer(self.ggml_payload), _pointer(self.output), ctypes.c_int64(self.count)
        )

    def numpy_encode(self) -> None:
        """The bytes and the metrics of int4, in NumPy."""
        x = self.sources["F32"].view(np.float32).reshape(-1, 64)
        scale = (
            (np.abs(x).max(axis=1) / np.float32(7)).astype(np.float16).astype(np.float32)[:, None]
        )
        quotient = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
        q = np.clip(np.trunc(quotient + np.copysign(np.float32(0.5), quotient)), -8, 7)
        codes = q.astype(np.int8).view(np.uint8)
        _ = (codes[:, :32] & 15) | (codes[:, 32:] << 4)
        y = q * scale
        error = y - x
        for values in (x, y, error):
            np.einsum("ij,ij->", values, values, dtype=np.float64)
        np.abs(error).max()
        np.abs(error).sum(dtype=np.float64)

    def encoder(self, key: str, bits: int, dtype: str, rotation: int) -> Callable[[], object]:
        """A kernel that encodes, with its metrics, to the payload `key`."""
        room = self.count * bits // 8 + self.count // 32
        payload = self.payloads.setdefault(key, np.zeros(room, np.uint8))

        def run() -> None:
            done = self.library.kvb_encode(
                bits,
                DTYPES[dtype],
                ctypes.c_size_t(rotation),
                self._source(dtype),
                ctypes.c_size_t(self.count),
                _pointer(payload),
            )
            if done < 0:
                raise SystemExit(f"{key} failed")

        return run

    def decoder(self, key: str, bits: int, dtype: str, rotation: int) -> Callable[[], object]:
        """A kernel that decodes the payload `key`."""

        def run() -> None:
            if not self.library.kvb_decode(
                bits,
                DTYPES[dtype],
                ctypes.c_size_t(rotation),
                _pointer(self.payloads[key]),
                ctypes.c_size_t(self.count),
                _pointer(self.output),
            ):
                raise SystemExit(f"{key} failed")

        return run

    def codec_encoder(self, key: str, codec: str, role: str, shape: Shape) -> Callable[[], object]:
        """Tensors of BF16 with the whole codec: search, metrics and all."""
        payload = self.payloads.setdefault(key, np.zeros(3 * self.count, np.uint8))
        elements = shape.elements(self.count)

        def run() -> None:
            self.pieces[key] = []
            begin = 0
            for first in range(0, self.count - elements + 1, elements):
                size = self.library.kvb_codec_encode(
                    codec.encode(),
                    DTYPES["BF16"],
                    ROLES[role],
                    ctypes.c_uint64(shape.heads),
                    ctypes.c_uint64(shape.tokens),
                    _pointer(self.sources["BF16"][first:]),
                    ctypes.c_uint64(elements),
                    _pointer(payload[begin:]),
                    ctypes.c_uint64(payload.nbytes - begin),
                )
                if size < 0:
                    raise SystemExit(f"{key} failed")
                self.pieces[key].append((begin, size))
                begin += size

        return run

    def codec_decoder(self, key: str, codec: str, role: str, shape: Shape) -> Callable[[], object]:
        """The codec that decodes the payloads of `key`."""

        def run() -> None:
            for begin, size in self.pieces[key]:
                if not self.library.kvb_codec_decode(
                    codec.encode(),
                    DTYPES["BF16"],
                    ROLES[role],
                    ctypes.c_uint64(shape.heads),
                    ctypes.c_uint64(shape.tokens),
                    _pointer(self.payloads[key][begin:]),
                    ctypes.c_uint64(size),
                    ctypes.c_uint64(shape.elements(self.count)),
                ):
                    raise SystemExit(f"{key} failed")

        return run

    def zstd_encode(self) -> None:
        """Level 1, on BF16."""
        self.zstd_payload = zstandard.ZstdCompressor(level=1).compress(self.sources["BF16"].data)

    def zstd_decode(self) -> None:
        """The reverse."""
        zstandard.ZstdDecompressor().decompress(self.zstd_payload)

    def rans_encode(self) -> None:
        """The entropy coder of ecsq alone, under a fixed table."""
        self.rans_pieces = []
        for piece in _pieces(self.symbols):
            coded = np.empty(2 * len(piece) + 128, np.uint8)
            size = self.library.kvb_rans_encode(
                ctypes.c_size_t(RANS_TABLE),
                _pointer(piece),
                ctypes.c_size_t(len(piece)),
                _pointer(coded),
                ctypes.c_size_t(len(coded)),
            )
            if size < 0:
                raise SystemExit("the entropy coder failed")
            self.rans_pieces.append(coded[:size])

    def rans_decode(self) -> None:
        """The reverse."""
        for coded, piece in zip(self.rans_pieces, _pieces(self.decoded_symbols), strict=True):
            if not self.library.kvb_rans_decode(
                ctypes.c_size_t(RANS_TABLE),
                _pointer(coded),
                ctypes.c_size_t(len(coded)),
                _pointer(piece),
                ctypes.c_size_t(len(piece)),
            ):
                raise SystemExit("the entropy decoder failed")

    def htscodecs_encode(self) -> None:
        """Order 0, 32 ways: counts the symbols first, and sends their table."""
        self.htscodecs_pieces = []
        for piece in _pieces(self.octets):
            coded = np.empty(2 * len(piece) + 4096, np.uint8)
            size = ctypes.c_uint(len(coded))
            if not self.htscodecs.rans_compress_to_4x16(
                _pointer(piece), len(piece), _pointer(coded), ctypes.byref(size), HTSCODECS_X32
            ):
                raise SystemExit("htscodecs failed")
            self.htscodecs_pieces.append(coded[: size.value])

    def htscodecs_decode(self) -> None:
        """The reverse."""
        for coded, piece in zip(self.htscodecs_pieces, _pieces(self.decoded_symbols), strict=True):
            size = ctypes.c_uint(len(piece))
            if not self.htscodecs.rans_uncompress_to_4x16(
                _pointer(coded), len(coded), _pointer(piece), ctypes.byref(size)
            ):
                raise SystemExit("htscodecs failed")

    def _source(self, dtype: str) -> ctypes.c_void_p:
        return _pointer(self.sources[dtype])


def _pieces(symbols: NDArray[np.generic]) -> list[NDArray[np.generic]]:
    return np.split(symbols, range(RANS_PIECE, len(symbols), RANS_PIECE))


def _pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
