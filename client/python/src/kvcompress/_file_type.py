# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a file is that is no safetensors file, by its first bytes: what `kv-compress` says of it."""

import codecs
import os
import stat
from contextlib import suppress
from pathlib import Path

from kvcompress.errors import InvalidArgumentError

# Of the header of a safetensors file, at most.
MAX_HEADER_BYTES = 100_000_000
_START_BYTES = 512
_SAVE_ARRAYS = "load it in Python and save its arrays with safetensors.numpy.save_file"
_SAVE_TENSORS = "load it in Python and save its tensors with safetensors.torch.save_file"
_DECOMPRESS = "decompress it first"
_LLAMA_CPP = "compress it with python -m kvcompress.integrations.llama_cpp compress"
_NAME_CACHE = "name the .safetensors file that has the cache"
_HTML = "an HTML page, perhaps of a download that failed", "download the cache again"

# What a file begins with, what it is, and what to do; in the order in which they are tried.
_TYPES = (
    (b"\x93NUMPY", "a NumPy array (.npy)", _SAVE_ARRAYS),
    (b"GGUF", "a GGUF file, which has weights of a model, not a KV cache", _NAME_CACHE),
    (b"nsgg", "a session of llama.cpp", _LLAMA_CPP),
    (b"qsgg", "a saved slot of llama.cpp", _LLAMA_CPP),
    (b"\x80\x02", "a Python pickle, as PyTorch wrote before 1.6", _SAVE_TENSORS),
    (b"\x80\x03", "a Python pickle", _SAVE_TENSORS),
    (b"\x80\x04\x95", "a Python pickle", _SAVE_TENSORS),
    (b"\x80\x05\x95", "a Python pickle", _SAVE_TENSORS),
    (b"\x1f\x8b\x08", "compressed with gzip", _DECOMPRESS),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard", _DECOMPRESS),
    (b"\x04\x22\x4d\x18", "compressed with LZ4", _DECOMPRESS),
    (b"\xfd7zXZ", "compressed with xz", _DECOMPRESS),
    (b"BZh", "compressed with bzip2", _DECOMPRESS),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", _SAVE_ARRAYS),
    (b"PAR1", "a Parquet file", _SAVE_ARRAYS),
    (b"ARROW1", "an Arrow file", _SAVE_ARRAYS),
    (
        b"version https://git-lfs.github.com/spec/",
        "a Git LFS pointer, which stands for a file that was not downloaded",
        "run git lfs pull where it lies",
    ),
    (b"<!DOCTYPE html", *_HTML),
    (b"<html", *_HTML),
)
_ZIP_NAME_OFFSET = 30
_TAR_OFFSET = 257
_LENGTH_BYTES = 8
_MIN_HEADER = 2


def check_file_type(source: object) -> None:
    """Refuses a path to a file that is known to be of another type.

    What is no path, no regular file or cannot be read is left to whoever opens it.

    Raises:
        InvalidArgumentError: The file begins as one of another type does, reason `INVALID_HEADER`.
    """
    if not isinstance(source, str | os.PathLike):
        return
    with suppress(OSError):
        path = Path(source)
        if not stat.S_ISREG(path.stat().st_mode):
            return
        with path.open("rb") as file:
            found = _other_type(file.read(_START_BYTES))
        if found is not None:
            what, remedy = found
            raise InvalidArgumentError(
                f"the file is {what}, not a safetensors file: {remedy}", reason="INVALID_HEADER"
            )


def _other_type(start: bytes) -> tuple[str, str] | None:
    """Returns what a file is and what to do about it; None for what may be safetensors."""
    # Eight bytes of length, then an object of JSON. No other type does that.
    if start[6:9] == b"\0\0{":
        return None
    for beginning, what, remedy in _TYPES:
        if start.startswith(beginning):
            return what, remedy
    if start.startswith(b"PK\x03\x04"):
        return _zip_type(start[_ZIP_NAME_OFFSET:])
    if start[_TAR_OFFSET:].startswith(b"ustar"):
        return "a tar archive", "unpack it, and name what it has"
    if start.lstrip().startswith((b"{", b"[")):
        index = b"weight_map" in start
        return "the index of a model in several files (JSON)" if index else "JSON", _NAME_CACHE
    if len(start) <= _LENGTH_BYTES:
        return None  # nothing can be told of so few
    text = _is_text(start)
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    damaged = start[_LENGTH_BYTES] == ord("{") or _MIN_HEADER <= length <= MAX_HEADER_BYTES
    return None if damaged and not text else _unknown_type(start, text)


def _is_text(start: bytes) -> bool:
    """Whether it reads as text: UTF-8 without control characters."""
    try:
        # The last character may be cut.
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return all(character in "\t\n\r" or character.isprintable() for character in text)


def _unknown_type(start: bytes, text: bool) -> tuple[str, str]:
    """Returns what a file is without length or first character of a header; shows none of it."""
    if not start.strip(b"\0"):
        what = "zeros from its first byte, perhaps of a copy that failed"
        return what, "copy or write it again"
    return "text" if text else "binary data of no known type", _NAME_CACHE


def _zip_type(name: bytes) -> tuple[str, str]:
    """Returns what a ZIP archive is, by the name of its first member."""
    pickle, array = name.find(b"data.pkl"), name.find(b".npy")
    if array >= 0 and (pickle < 0 or array < pickle):
        return "an archive of NumPy arrays (.npz)", _SAVE_ARRAYS
    if pickle >= 0:
        return "a PyTorch checkpoint (.pt, a ZIP archive of pickles)", _SAVE_TENSORS
    return "a ZIP archive", _NAME_CACHE
