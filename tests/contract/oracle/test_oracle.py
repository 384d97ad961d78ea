# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The oracle against examples worked out by hand, and against kvcompress.payload; no server."""

import numpy as np
import pytest

from kvcompress import payload
from oracle import caches, encoder, metrics, source
from oracle.reference import deserialize

CACHES = caches.all_caches()


def floats(numbers: list[float]) -> source.F32:
    """Makes an array of binary32."""
    return np.array(numbers, np.float32)


def test_group_by_hand() -> None:
    scale, q = encoder.quantize(floats([7, -7, 3.5, -3.5, 0.49999997, 0.5, -0.5, 0]))
    assert scale == 1.0
    assert q.tolist() == [7, -7, 4, -4, 0, 1, -1, 0]
    assert encoder.pack(q) == bytes([0x07, 0x19, 0xF4, 0x0C])


def test_odd_group_leaves_the_last_high_half_zero() -> None:
    assert encoder.pack(np.array([-8, 3, 5])) == bytes([0x58, 0x03])


def test_block_layout() -> None:
    ones = source.tensor("x", "F32", np.full(4096 + 3, 7.0))
    data, decoded = encoder.encode_tensor(ones, 128)
    one = np.float16(1).tobytes()
    assert data == one * 32 + b"\x77" * 2048 + one + b"\x77\x07"
    assert decoded == ones.data


def test_half_stays_finite() -> None:
    largest = source.tensor("x", "F16", [65504.0, -65504.0])
    data, decoded = encoder.encode_tensor(largest, 32)
    assert np.frombuffer(data, "<f2", 1)[0] == 9360
    assert decoded == largest.data


def test_scale_beyond_half_is_refused() -> None:
    with pytest.raises(encoder.RefusedError):
        encoder.encode_tensor(source.tensor("x", "F32", [458640.0]), 32)


def test_roles() -> None:
    names = [
        "layer_0_key",
        "layer_12_value",
        "layer_01_key",
        "layer_1_V",
        "layer_1234567890_key",
    ]
    assert [encoder.role_of(name) for name in names] == ["k0", "v12", "-", "v1", "-"]


def test_metrics_by_hand() -> None:
    x, y = floats([3, 4]), floats([3, 3])
    measured = metrics.measure([(x, y)])
    assert (measured.mse, measured.mae, measured.max_error) == (0.5, 0.5, 1.0)
    assert measured.snr_db == pytest.approx(10 * np.log10(25))
    assert measured.cosine_similarity == pytest.approx(21 / (5 * np.sqrt(18)))
    zero = metrics.measure([(x, np.zeros(2, np.float32))])
    assert (zero.snr_db, zero.cosine_similarity) == (0.0, 0.0)
    exact = metrics.measure([(x, x)])
    assert (exact.snr_db, exact.psnr_db, exact.cosine_similarity) == (None, None, 1.0)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("name", CACHES)
def test_payload_reader_agrees(name: str, group: int) -> None:
    labels = {"tenant": "ü", "model": "m"}
    artefact = encoder.encode(CACHES[name], group, labels)
    arrays = payload.read(artefact.data)
    assert list(arrays) == [each.source.name for each in artefact.tensors]
    for each in artefact.tensors:
        array = arrays[each.source.name]
        assert array.tobytes() == each.decoded
        assert array.shape == each.source.shape
        if each.source.dtype in source.NUMBERS:
            size = payload.payload_size(f"int4:{group}", each.source.shape, each.source.dtype)
            assert size == len(each.payload)
    header = payload.read_header(artefact.data)
    assert header.checksum == artefact.checksum
    assert header.labels == labels
    assert header.metadata == source.read(CACHES[name])[1]
    restored = deserialize(artefact.restored)
    assert {name: bytes(entry["data"]) for name, entry in restored.items()} == {
        each.source.name: each.decoded for each in artefact.tensors
    }
    listed = deserialize(artefact.data)
    assert {entry["dtype"] for entry in listed.values()} <= {"U8"}
