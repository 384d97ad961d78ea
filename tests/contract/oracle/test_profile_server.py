# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Profiles of a server: how calls name them, what reports say, and what is refused."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvcompress import (
    Client,
    CompressionWarning,
    FailedPreconditionError,
    InvalidArgumentError,
    KVCompressError,
    OutOfRangeError,
    PresetExpectation,
    ProfileUse,
)
from kvcompress.options import CompressArguments, Effort
from oracle.profiles import Profile, read_safetensors, restore
from oracle.server import Server, running_server
from oracle.test_profiles import GOLDEN, Run, run

__all__ = ["run"]

SOURCE = GOLDEN / "cache.safetensors"
TINY = Profile((GOLDEN / "tiny.profile").read_bytes())
NEEDED = ProfileUse(TINY.digest, "tiny", 8)
USED = replace(NEEDED, first_token=0)
BUDGET = 16 << 20


def without_fit(used: ProfileUse | None) -> ProfileUse | None:
    """The same without how well keys fit, which is well."""
    if used is None:
        return None
    assert used.fit is not None
    assert 0.8 < used.fit < 1.2
    return replace(used, fit=None)


@pytest.fixture(scope="module")
def profiled(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the golden profile, and with a small budget."""
    folder = tmp_path_factory.mktemp("profiles")
    shutil.copy(GOLDEN / "tiny.profile", folder / "small.profile")
    flags = ["--profile-directory", str(folder), "--memory-budget-bytes", str(BUDGET)]
    with running_server(bin_dir, *flags) as server:
        yield server


@pytest.fixture(scope="module")
def user(profiled: Server) -> Iterator[Client]:
    """A client of that server."""
    with Client(profiled.target, timeout=60) as client:
        yield client


def test_the_server_lists_its_profiles(user: Client, client: Client) -> None:
    info = user.server_info()
    (profile,) = info.profiles
    assert (profile.name, profile.digest, profile.label) == ("small", TINY.digest, "tiny")
    assert (profile.groups, profile.tensors) == (2, 8)
    assert profile.size_bytes == (GOLDEN / "tiny.profile").stat().st_size
    assert profile.presets == ("high", "max", "ultra")
    assert profile.training == "caches=2 tokens=312 metric=spread"
    assert profile.expectations == ()
    assert (info.limits.max_profile_bytes, info.limits.max_profiles) == (256 << 20, 64)
    without = client.server_info()
    assert without.profiles == ()
    assert (without.limits.max_profile_bytes, without.limits.max_profiles) == (0, 0)


@pytest.mark.parametrize("name", ["small", TINY.digest, "tiny"])
def test_the_reader_gives_what_a_server_restores(user: Client, name: str) -> None:
    result = user.compress(SOURCE, codec="klt:high", profile=name)
    assert without_fit(result.report.profile) == USED
    assert [tensor.profile_group for tensor in result.report.tensors] == [0] * 4 + [1] * 4
    assert {tensor.codec for tensor in result.report.tensors} == {"klt-profile:high"}
    assert all(tensor.metrics.cosine_similarity > 0.99 for tensor in result.report.tensors)
    assert result.artefact is not None
    back = user.decompress(result.artefact)
    assert back.report.profile == NEEDED
    assert back.safetensors is not None
    _, tensors = read_safetensors(back.safetensors)
    assert restore(result.artefact, TINY) == {key: data for key, (_, data) in tensors.items()}


@pytest.mark.parametrize("effort", ["balanced", "best"])
def test_blocks_of_any_length(user: Client, effort: Effort) -> None:
    """The reader gives what the service restores; a trellis ends with its block."""
    whole = user.compress(SOURCE, codec="klt:high", profile="tiny", effort=effort)
    expected = restore(whole.artefact or b"", TINY)
    sizes = [len(whole.artefact or b"")]
    for tokens in (100, 16):
        result = user.compress(
            SOURCE, codec="klt:high", profile="tiny", effort=effort, block_tokens=tokens
        )
        artefact = result.artefact or b""
        sizes.append(len(artefact))
        found = restore(artefact, TINY)
        _, tensors = read_safetensors(user.decompress(artefact).safetensors or b"")
        assert found == {key: data for key, (_, data) in tensors.items()}
        assert effort == "best" or found == expected
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("tokens", [15, 257])
def test_blocks_of_other_lengths_are_refused(user: Client, tokens: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"16 to 256 tokens, not {tokens}") as caught:
        user.compress(SOURCE, codec="klt:high", profile="tiny", block_tokens=tokens)
    assert caught.value.field == "options.block_tokens"


def test_a_label_chooses_the_profile(user: Client) -> None:
    """And nothing else does; what does not go together with one is coded as ever."""
    cases: list[tuple[CompressArguments, ProfileUse | None]] = [
        ({"codec": "klt:ultra", "labels": {"model": "tiny"}}, USED),
        ({"codec": "klt:ultra", "labels": {"model": "tiny"}, "profile": "none"}, None),
        ({"codec": "klt:ultra", "labels": {"model": "other"}}, None),
        ({"codec": "klt:ultra"}, None),
        ({"codec": "klt:contract", "labels": {"model": "tiny"}}, None),
        ({"codec": "int4", "labels": {"model": "tiny"}}, None),
    ]
    for options, used in cases:
        assert without_fit(user.measure(SOURCE, **options).profile) == used, options


def test_several_that_fit_are_told(bin_dir: Path, tmp_path: Path) -> None:
    """None is used then, and a label names none."""
    profile = (GOLDEN / "tiny.profile").read_bytes()
    (tmp_path / "a.profile").write_bytes(profile)
    (tmp_path / "b.profile").write_bytes(profile.replace(b"caches=2", b"caches=3"))
    (tmp_path / "c.profile").write_bytes(profile)
    flags = ["--profile-directory", str(tmp_path)]
    with running_server(bin_dir, *flags) as server, Client(server.target, timeout=60) as user:
        with pytest.warns(CompressionWarning, match="PROFILE_AMBIGUOUS"):
            report = user.measure(SOURCE, codec="klt:max", labels={"model": "tiny"})
        assert report.profile is None
        with pytest.raises(FailedPreconditionError, match=r"2 profiles .*: a, b, c") as error:
            user.measure(SOURCE, codec="klt:max", profile="tiny")
        assert error.value.reason == "PROFILE_AMBIGUOUS"
        used = user.measure(SOURCE, codec="klt:max", profile="c").profile
        assert without_fit(used) == USED


def test_of_several_with_a_label_the_preset_decides(bin_dir: Path, tmp_path: Path) -> None:
    """So that `contract`, which has a file of its own, goes by the same label as the others."""
    profile = (GOLDEN / "tiny.profile").read_bytes()
    (tmp_path / "a.profile").write_bytes(profile.replace(b"high=", b"mild="))
    (tmp_path / "b.profile").write_bytes(profile.replace(b"ultra=", b"other="))
    flags = ["--profile-directory", str(tmp_path)]
    with running_server(bin_dir, *flags) as server, Client(server.target, timeout=60) as user:
        digests = {each.name: each.digest for each in user.server_info().profiles}
        for preset, name in (("ultra", "a"), ("high", "b")):
            used = user.measure(SOURCE, codec=f"klt:{preset}", profile="tiny").profile
            assert used is not None
            assert used.digest == digests[name]
        with pytest.raises(FailedPreconditionError, match=r"2 profiles .* not one alone has"):
            user.measure(SOURCE, codec="klt:max", profile="tiny")


@pytest.mark.parametrize(
    ("options", "reason", "words"),
    [
        ({"codec": "klt:high", "profile": "other"}, "PROFILE_UNKNOWN", "other.*it has: small"),
        ({"codec": "klt:high", "profile": "../small"}, "PROFILE_UNKNOWN", "it has: small"),
        ({"codec": "int4", "profile": "small"}, "INVALID_OPTIONS", "goes with klt, .* alone"),
        ({"codec": "klt:contract", "profile": "small"}, "UNKNOWN_PRESET", "high, max, ultra"),
    ],
)
def test_refused(user: Client, options: CompressArguments, reason: str, words: str) -> None:
    with pytest.raises(KVCompressError, match=words) as error:
        user.measure(SOURCE, **options)
    assert error.value.reason == reason


def test_a_layout_is_not_reconstructed_beside_a_profile(user: Client, tmp_path: Path) -> None:
    source = {"layer_0_key": np.zeros((4, 2, 16), np.float16)}
    options: CompressArguments = {"codec": "klt:high", "profile": "small", "layout": "thd"}
    with pytest.raises(InvalidArgumentError, match="a layout, a profile and reconstruction"):
        user.compress(source, tmp_path / "out", reconstruct=True, **options)


def test_a_cache_of_another_model_is_refused(user: Client, sample: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="no group of the profile") as error:
        user.measure(sample, codec="klt:high", profile="small")
    assert error.value.reason == "PROFILE_MISMATCH"


def test_expectations_of_presets_are_listed(bin_dir: Path, tmp_path: Path) -> None:
    """Where the profile has them."""
    content = (GOLDEN / "tiny.profile").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"]["kvcompress.profile.expectations"] = "4/0.25/2,8/0.5/2,16/1/2"
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    whole = len(text).to_bytes(8, "little") + text + content[8 + size :]
    (tmp_path / "measured.profile").write_bytes(whole)
    flags = ["--profile-directory", str(tmp_path)]
    with running_server(bin_dir, *flags) as server, Client(server.target, timeout=60) as user:
        (profile,) = user.server_info().profiles
    assert profile.expectations == (
        PresetExpectation("high", 4, 0.25, 2),
        PresetExpectation("max", 8, 0.5, 2),
        PresetExpectation("ultra", 16, 1, 2),
    )


def test_a_server_without_the_profile_names_it(client: Client) -> None:
    artefact = (GOLDEN / "cache.kvc.safetensors").read_bytes()
    with pytest.raises(FailedPreconditionError, match='"tiny"') as error:
        client.decompress(artefact)
    assert (error.value.reason, error.value.profile) == ("PROFILE_MISSING", TINY.digest)
    assert TINY.digest in str(error.value)
    with pytest.raises(FailedPreconditionError, match="it has none"):
        client.measure(SOURCE, codec="klt:high", profile="small")


def test_groups_are_held_within_the_budget(user: Client) -> None:
    """The header states what a group takes; the error names what takes less."""
    zeros = np.zeros((1, 2, 60_000, 16), np.float16)
    tensors = {f"layer_{i}_{role}": zeros for i in range(2) for role in ("key", "value")}
    with pytest.raises(OutOfRangeError) as error:
        user.measure(tensors, codec="klt:high", profile="small")
    assert error.value.reason == "EXCEEDS_BUDGET"
    for part in ("profile: none", TINY.digest, "fewer tokens", "memory limit", "-budget-bytes"):
        assert part in str(error.value)


def test_a_server_of_the_clients_own(
    bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    shutil.copy(GOLDEN / "tiny.profile", tmp_path / "small.profile")
    with Client(profile_directory=tmp_path, timeout=60) as user:
        artefact = user.compress(SOURCE, codec="klt:high", profile="small").artefact
    assert artefact is not None
    assert restore(artefact, TINY)
    with pytest.raises(ValueError, match="without a target"):
        Client("localhost:1", profile_directory=tmp_path)


def test_kv_compress_through_a_server(run: Run, profiled: Server, tmp_path: Path) -> None:
    """The same bytes as with the file of the profile and without a server."""
    over, alone, back = tmp_path / "over", tmp_path / "alone", tmp_path / "back"
    flags = ("-input", SOURCE, "-codec", "klt:max")
    done = run(*flags, "-output", over, "-server", profiled.target, "-profile", "small")
    assert done.returncode == 0, done.stderr
    assert f'"digest": "{TINY.digest}"'.encode() in done.stdout
    done = run(*flags, "-output", alone, "-profile", GOLDEN / "tiny.profile", "-verbose")
    assert done.returncode == 0, done.stderr
    assert b'"profile_group": 1' in done.stdout
    assert over.read_bytes() == alone.read_bytes()
    restoring = ("-decompress", "-input", over, "-output", back, "-server", profiled.target)
    done = run(*restoring)
    assert done.returncode == 0, done.stderr
    assert f'"digest": "{TINY.digest}"'.encode() in done.stdout
    done = run(*restoring, "-profile", "small")
    assert (done.returncode, b"finds the profile" in done.stderr) == (1, True)
