# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the tests of kvcompress.gpu share: Triton's interpreter, kv-compress, and artefacts."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvcompress import load_torch
from oracle.crafted_profiles import Group, gap, make_profile

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from interpreting import fast_interpreter  # noqa: E402

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "profile"
PROFILES = {"cache": "tiny", "contract": "contract", "trellis": "tiny"}
PROFILES |= {"contract-trellis": "contract"}
ON_HOST = {"lossless": "tiny"}
"""Profiles of golden artefacts that a device does not decode."""
Tensors = dict[str, Any]  # torch's
Restore = Callable[..., Tensors]


class RefusedError(Exception):
    """What kv-compress says of an artefact that it does not restore."""


@pytest.fixture(autouse=True, scope="module")
def language_patched_once() -> Iterator[None]:
    """See `fast_interpreter`."""
    with fast_interpreter():
        yield


@pytest.fixture(scope="module")
def restore(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Restore:
    """Restores artefacts with kv-compress."""
    folder = tmp_path_factory.mktemp("restored")

    def restore(artefact: bytes, profile: bytes, *flags: str) -> Tensors:
        paths = [folder / name for name in ("artefact", "profile", "back")]
        for path, data in zip(paths, (artefact, profile), strict=False):
            path.write_bytes(data)
        command: list[str | Path] = [bin_dir / "kv-compress", "-decompress", "-force", *flags]
        command += ["-input", paths[0], "-profile", paths[1], "-output", paths[2]]
        done = subprocess.run(command, capture_output=True)
        if done.returncode != 0:
            raise RefusedError(done.stderr.decode())
        return load_torch(paths[2].read_bytes())

    return restore


def bits(tensor: Any) -> Any:  # noqa: ANN401
    """The bits of the elements."""
    return tensor.contiguous().view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def assert_same(found: Tensors, expected: Tensors) -> None:
    """Requires the same tensors, bit for bit."""
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
        assert torch.equal(bits(found[name]), bits(tensor)), name


def golden(name: str) -> tuple[bytes, bytes]:
    """A golden artefact and its profile."""
    profile = GOLDEN / f"{(PROFILES | ON_HOST)[name]}.profile"
    return (GOLDEN / f"{name}.kvc.safetensors").read_bytes(), profile.read_bytes()


# Heads of an odd number of channels, of which a part is rotated; two rotations.
MEMBERS = ("k0:2x12:0", "v0:1x5:-", "k1:1x7:1", "v1:3x16:-")
ROTATIONS = (("interleaved", 4), ("halves", 3))
CHANNELS = {"layer_0_key": (2, 12), "layer_0_value": (1, 5)}
CHANNELS |= {"layer_1_key": (1, 7), "layer_1_value": (3, 16)}


def crafted(seed: int, dtype: str = "BF16", *, trellis: bool = False, batches: int = 1) -> Group:
    """A payload with all that the format has; two runs of components, the last one short."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(4, 36, 37)
    quanta = rng.integers(-4, 5, (batches, 20, 37))
    offsets = [int(each) for each in rng.integers(-16, 20, 21)]
    itemsize = 4 if dtype == "F32" else 2
    sinks = b""
    for heads, channels in CHANNELS.values():
        for _ in range(batches * heads):
            sinks += b"\x80\x3c" + (rng.integers(-127, 128, channels).astype("i1")).tobytes()
    element = bytes(itemsize - 1) + b"\x41"
    exceptions = [gap(3) + element + gap(130) + element, b"", gap(0) + element, b""]
    return Group(
        make_profile(MEMBERS, ROTATIONS, classes, seed),
        quanta,
        dtype,
        shift=2,
        step=0.75,
        position=(1 << 32) - 7,
        trellis=trellis,
        offsets=offsets,
        sink_tokens=1,
        sinks=sinks,
        units=[0.5, 1, 3, 2.0**-20],
        exceptions=exceptions,
    )
