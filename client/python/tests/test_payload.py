# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.payload on an artefact written out by hand from core/FORMAT.md."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import xxhash

from kvcompress import payload
from kvcompress.payload import _dtypes as payload_dtypes
from kvcompress.payload._dtypes import NUMBERS

# One group of three F16 values: scale 0.5; codes 7, -2 and 3, the third next to the first.
PAYLOAD = np.float16(0.5).tobytes() + bytes([0x37, 0x0E])


def artefact(payload_bytes: bytes = PAYLOAD, more: bytes = b"") -> bytes:
    """Writes an artefact of one tensor; `more` goes into the metadata."""
    digest = xxhash.xxh3_128_hexdigest(payload_bytes).encode()
    text = (
        b'{"__metadata__":{"kvcompress.checksum":"xxh3-128:' + b"0" * 32 + b'",'
        b'"kvcompress.format":"1","kvcompress.layout":"bhtd",'
        b'"kvcompress.tensors":"int4:64 F16 3 k2 ' + digest + b'"' + more + b"},"
        b'"layer_2_key":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    )
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    checksum = xxhash.xxh3_128_hexdigest(head).encode()
    return head.replace(b"0" * 32, checksum, 1) + payload_bytes


def test_values_by_hand(tmp_path: Path) -> None:
    more = b',"kvcompress.label.model":"m","own":"\xc3\xbc"'
    path = tmp_path / "artefact"
    path.write_bytes(artefact(more=more))
    for source in (path, str(path), path.read_bytes()):
        arrays = payload.read(source)
        assert list(arrays) == ["layer_2_key"]
        assert arrays["layer_2_key"].dtype == np.float16
        assert arrays["layer_2_key"].tolist() == [3.5, -1.0, 1.5]
    header = payload.read_header(artefact(more=more))
    assert (header.labels, header.metadata) == ({"model": "m"}, {"own": "ü"})
    entry = header.tensors[0]
    assert (entry.codec, entry.dtype, entry.shape) == ("int4:64", "F16", (3,))
    assert (entry.role, entry.layer, entry.end - entry.begin) == ("k", 2, 4)


def test_damage() -> None:
    for change, code, tensor in (
        (artefact()[:-1], "DATA_LOSS", None),
        (artefact() + b"\0", "DATA_LOSS", None),
        (artefact()[:-1] + b"\x0f", "DATA_LOSS", "layer_2_key"),
        (artefact(PAYLOAD[:3] + b"\x1e"), "DATA_LOSS", "layer_2_key"),
        (artefact(b"\x00\xbc" + PAYLOAD[2:]), "DATA_LOSS", "layer_2_key"),
        (artefact(more=b',"kvcompress.label.M":"m"'), "DATA_LOSS", None),
        (b"\x02" + bytes(7) + b"{}", "FAILED_PRECONDITION", None),
    ):
        with pytest.raises(payload.PayloadError) as caught:
            payload.read(change)
        assert (caught.value.code, caught.value.tensor) == (code, tensor)


@pytest.mark.parametrize(
    ("codec", "shape", "size"),
    [
        ("int4:64", (), 3),
        ("int4:64", (0,), 0),
        ("int4:32", (1, 3, 0, 64), 0),
        ("int4:32", (65,), 6 + 33),
        ("int4:64", (1, 3, 96, 64), 18432 // 2 + 2 * 288),
        ("int4:128", (2**40,), 2**39 + 2**34),
    ],
)
def test_payload_size(codec: str, shape: tuple[int, ...], size: int) -> None:
    for dtype in NUMBERS:
        assert payload.payload_size(codec, shape, dtype) == size


@pytest.mark.parametrize("codec", ["klt-profile:high", "lossless-profile:my-own-1"])
def test_what_a_tensor_adds_to_the_bound_of_groups(codec: str) -> None:
    for dtype in ("F16", "BF16"):
        assert payload.payload_size(codec, (1, 2, 3, 4), dtype) == 16 * 24 + 65536


@pytest.mark.parametrize(
    ("codec", "shape", "dtype"),
    [
        ("int4", (1,), "F16"),
        ("int4:16", (1,), "F16"),
        ("int4:64", (-1,), "F16"),
        ("int4:64", (1,), "F4"),
        ("int4:64", (1,), "I32"),
        ("ecsq+zstd:high", (1,), "F8_E8M0"),
        ("lossless-profile", (1,), "BF16"),
        ("lossless-profile:HIGH", (1,), "BF16"),
        ("lossless-profile:high", (1,), "F32"),
        ("lossless-profile:high", (1,), "I16"),
        ("lossless-profile+zstd:high", (1,), "BF16"),
    ],
)
def test_payload_size_of_what_is_none(codec: str, shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        payload.payload_size(codec, shape, dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "largest"),
    [
        ("F8_E4M3", ml_dtypes.float8_e4m3fn, 448),
        ("F8_E5M2", ml_dtypes.float8_e5m2, 57344),
    ],
)
def test_rounding_to_float8(name: str, dtype: type, largest: float) -> None:
    every = np.arange(256, dtype=np.uint8)
    finite = every[payload_dtypes.finite(every, name)]
    values = np.sort(finite.view(dtype).astype(np.float32))
    assert np.abs(values).max() == largest
    middles = (values[1:] + values[:-1]) / 2
    numbers = np.concatenate(
        [values, middles, np.nextafter(middles, np.float32(1e9)), np.nextafter(middles, -middles)]
    )
    want = numbers.astype(dtype).view(np.uint8)
    got = payload_dtypes.round_to_bits(numbers, name)
    # Between two zeros there is none of its own.
    assert np.array_equal(got[numbers != 0], want[numbers != 0])
    beyond = np.array([1.04 * largest, -1e30, np.inf, -np.inf], np.float32)
    kept = payload_dtypes.from_bits(payload_dtypes.round_to_bits(beyond, name), name)
    assert kept.astype(np.float32).tolist() == [largest, -largest, largest, -largest]


def test_the_one_folder_is_enough(tmp_path: Path) -> None:
    shutil.copytree(Path(payload.__file__).parent, tmp_path / "reader")
    (tmp_path / "artefact").write_bytes(artefact())
    program = (
        "import sys; import reader; arrays = reader.read('artefact')\n"
        "print([array.tolist() for array in arrays.values()])\n"
        "print(sorted({'grpc', 'google', 'kvcompress'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] += {sys.path!r}\n{program}"],
        capture_output=True,
        cwd=tmp_path,
        check=True,
        text=True,
    )
    assert done.stdout == "[[3.5, -1.0, 1.5]]\n[]\n"


def test_the_package_has_it() -> None:
    """Without an import of its own, as documents write it."""
    program = "import kvcompress; print(kvcompress.payload.read.__name__)"
    modules = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=True, env=modules)
    assert done.stdout == b"read\n"
