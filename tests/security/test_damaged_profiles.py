# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A damaged profile is refused, or is another one: never taken for what it was."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from server_process import Start

from kvcompress import Client, FailedPreconditionError

GOLDEN = Path(__file__).parents[1] / "golden" / "profile"
# Of all profiles that a server takes.
FLIPS = 60


def test_flipped_bits(start: Start, tmp_path: Path) -> None:
    """Some in the header, some in the matrices."""
    good = (GOLDEN / "tiny.profile").read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    pick = random.Random(0)
    places = pick.sample(range(header), FLIPS // 2)
    places += pick.sample(range(header, len(good)), FLIPS // 2)
    for number, place in enumerate(places):
        flipped = bytearray(good)
        flipped[place] ^= 1 << pick.randrange(8)
        (tmp_path / f"flip-{number}.profile").write_bytes(flipped)
    server = start("--profile-directory", str(tmp_path))
    with Client(server.addresses[0], timeout=30) as client:
        artefact = (GOLDEN / "cache.kvc.safetensors").read_bytes()
        with pytest.raises(FailedPreconditionError) as missing:
            client.decompress(artefact)
        assert missing.value.reason == "PROFILE_MISSING"
        loaded = client.server_info().profiles
        assert missing.value.profile not in {profile.digest for profile in loaded}
        assert len({profile.digest for profile in loaded}) == len(loaded)
        # Nothing detects a changed number of a matrix; it produces other artefacts, of their own.
        assert 0 < len(loaded) < FLIPS
        source = GOLDEN / "cache.safetensors"
        for profile in loaded[:8]:
            if "high" not in profile.presets:
                continue
            result = client.compress(source, codec="klt:high", profile=profile.name)
            assert result.report.profile is not None
            assert result.report.profile.digest == profile.digest
            assert result.artefact is not None
            needed = client.decompress(result.artefact).report.profile
            assert needed == replace(result.report.profile, first_token=None, fit=None)
