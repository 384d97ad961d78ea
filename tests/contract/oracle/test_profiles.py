# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Profiles through kv-compress, held against a reader that was written from FORMAT.md."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from kv_compress import refuse, succeed

from kvcompress import payload
from oracle.encoder import seal
from oracle.profiles import Profile, read_safetensors, restore
from oracle.source import Tensor, tensor, write

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "profile"
LAYERS, HEADS, CHANNELS, SIGNALS = 4, 2, 16, 6
Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def run(bin_dir: Path, tmp_path: Path) -> Run:
    """Runs kv-compress."""

    def run(*arguments: object) -> "subprocess.CompletedProcess[bytes]":
        command = [str(bin_dir / "kv-compress"), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)

    return run


def turned(values: npt.NDArray[np.float64], first: int = 0) -> npt.NDArray[np.float64]:
    """Rotary embedding with base 10,000, from the position `first` on."""
    half = CHANNELS // 2
    positions = first + np.arange(values.shape[2])
    phases = positions[:, None] * 10000.0 ** (-np.arange(half) / half)
    a, b = values[..., :half], values[..., half:]
    cosine, sine = np.cos(phases), np.sin(phases)
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def cache(seed: int, tokens: int, dtype: str = "BF16", batches: int = 1, first: int = 0) -> bytes:
    """A cache whose layers are mixtures of the same signals; keys are turned."""
    mixing = np.random.default_rng(0)
    rng = np.random.default_rng(seed)
    signals = rng.standard_normal((batches, 1, tokens, SIGNALS))
    tensors = []
    for layer in range(LAYERS):
        for role in ("key", "value"):
            mix = mixing.standard_normal((HEADS, SIGNALS, CHANNELS))
            noise = 0.1 * rng.standard_normal((batches, HEADS, tokens, CHANNELS))
            mean = 3 * mixing.standard_normal((HEADS, 1, CHANNELS))
            values = np.einsum("bxts,hsc->bhtc", signals, mix) + noise + mean
            if role == "key":
                values = turned(values, first)
            tensors.append(tensor(f"layer_{layer}_{role}", dtype, values, values.shape))
    return write(tensors)


def write_with(metadata: dict[str, str], file: bytes) -> bytes:
    """Adds metadata to a file."""
    _, tensors = read_safetensors(file)
    return write(
        (
            Tensor(name, of["dtype"], tuple(of["shape"]), data)
            for name, (of, data) in tensors.items()
        ),
        metadata,
    )


def payloads(artefact: bytes) -> dict[str, bytes]:
    """The payloads of an artefact by their tensors."""
    return {name: data for name, (_, data) in read_safetensors(artefact)[1].items()}


def train(run: Run, folder: Path, *flags: object) -> Path:
    """Trains a profile of two groups."""
    paths = []
    for seed, tokens in ((1, 200), (2, 120)):
        paths.append(folder / f"training-{seed}.safetensors")
        paths[-1].write_bytes(cache(seed, tokens))
    path = folder / "test.profile"
    options = ("-model-label", "tiny", "-profile-layers", 2, "-profile-components", 40)
    done = run("-train-profile", path, "-force", *options, *flags, *paths)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["profile"] == Profile(path.read_bytes()).digest
    assert [group["channels"] for group in report["groups"]] == [128, 128]
    return path


@pytest.mark.parametrize("theta", [0, 10000])
@pytest.mark.parametrize("effort", ["balanced", "best"])
@pytest.mark.parametrize(("dtype", "tokens", "batches"), [("BF16", 300, 1), ("F32", 40, 2)])
def test_the_reader_gives_what_kv_compress_restores(
    run: Run, tmp_path: Path, theta: int, effort: str, dtype: str, tokens: int, batches: int
) -> None:
    # Steps as fine as a trellis is for.
    presets = ("-train-presets", "high=0.06") if effort == "best" else ()
    profile = train(run, tmp_path, "-rope-theta", theta, *presets)
    source = tmp_path / "in.safetensors"
    source.write_bytes(cache(3, tokens, dtype, batches))
    artefact, back = tmp_path / "out", tmp_path / "back"
    flags = ("-codec", "klt:high", "-profile", profile, "-effort", effort)
    done = run("-input", source, "-output", artefact, *flags)
    assert done.returncode == 0, done.stderr
    assert artefact.stat().st_size * 3 < source.stat().st_size
    trellises = {data[1] & 8 for data in payloads(artefact.read_bytes()).values() if data}
    assert trellises == {8 if effort == "best" else 0}
    done = run("-decompress", "-input", artefact, "-output", back, "-profile", profile)
    assert done.returncode == 0, done.stderr
    _, tensors = read_safetensors(back.read_bytes())
    read = restore(artefact.read_bytes(), Profile(profile.read_bytes()))
    assert read == {name: data for name, (_, data) in tensors.items()}


def compress(run: Run, profile: Path, source: bytes, *flags: object) -> tuple[Any, bytes]:
    """Returns the report and the artefact of a cache."""
    path = profile.with_name("source")
    path.write_bytes(source)
    artefact = profile.with_name("artefact")
    flags = ("-codec", "klt:high", "-profile", profile, *flags)
    done = run("-input", path, "-output", artefact, "-force", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), artefact.read_bytes()


def test_a_cache_begins_where_its_keys_say(run: Run, tmp_path: Path) -> None:
    profile = train(run, tmp_path, "-rope-theta", 10000)
    for first in (0, 1, 255, 4095, 4096, 60_000, 131_071):
        source = cache(3, 40, first=first)
        report, artefact = compress(run, profile, source)
        assert report["profile"]["first_token"] == first
        assert 0.8 < report["profile"]["fit"] < 1.2
        assert report["warnings"] == []
        header, tensors = read_safetensors(source)
        declared = write_with({"first_token": str(first)}, source)
        report, same = compress(run, profile, declared)
        assert report["profile"]["first_token"] == first
        assert payloads(same) == payloads(artefact)
        back = tmp_path / "back"
        restoring = ("-decompress", "-input", tmp_path / "artefact", "-output", back, "-force")
        done = run(*restoring, "-profile", profile)
        assert done.returncode == 0, done.stderr
        restored = read_safetensors(back.read_bytes())[1]
        read = restore(same, Profile(profile.read_bytes()))
        assert read == {name: data for name, (_, data) in restored.items()}
        assert header == {}
        assert restored.keys() == tensors.keys()


@pytest.mark.parametrize("declared", [False, True])
def test_keys_that_are_not_the_models_are_told_of(run: Run, tmp_path: Path, declared: bool) -> None:
    profile = train(run, tmp_path, "-rope-theta", 10000)
    if declared:
        source = write_with({"first_token": "1000"}, cache(3, 60))
    else:
        rng = np.random.default_rng(0)
        shape = (1, HEADS, 60, CHANNELS)
        source = write(
            tensor(f"layer_{layer}_{role}", "BF16", 5 * rng.standard_normal(shape), shape)
            for layer in range(LAYERS)
            for role in ("key", "value")
        )
    report, _ = compress(run, profile, source)
    assert [warning["code"] for warning in report["warnings"]] == ["PROFILE_POOR_FIT"]
    words = "the declared first_token" if declared else "no position of the first token"
    assert words in report["warnings"][0]["message"]
    assert report["profile"]["first_token"] == (1000 if declared else 0)
    assert report["profile"]["fit"] < 0.5


def test_a_layout_beside_a_profile(run: Run, tmp_path: Path) -> None:
    profile = train(run, tmp_path, "-rope-theta", 10000)
    plain = cache(3, 70, first=300)
    _, tensors = read_safetensors(plain)
    size = HEADS * 70 * CHANNELS
    stacked = np.array(
        [
            [
                np.frombuffer(tensors[f"layer_{layer}_{role}"][1], "<u2", size)
                .reshape(HEADS, 70, CHANNELS)
                .transpose(1, 0, 2)
                .reshape(70, HEADS * CHANNELS)
                for layer in range(LAYERS)
            ]
            for role in ("key", "value")
        ]
    )
    source = write([Tensor("kv", "BF16", stacked.shape, stacked.tobytes())])
    report, artefact = compress(run, profile, source, "-layout", f"2ltd:heads={HEADS}")
    assert report["profile"] == compress(run, profile, plain)[0]["profile"]
    assert len(artefact) < 1.1 * len(compress(run, profile, plain)[1])
    (tmp_path / "laid-out").write_bytes(artefact)
    restored = tmp_path / "restored"
    flags = ("-profile", profile, "-decompress", "-force", "-input", tmp_path / "laid-out")
    assert run(*flags, "-output", restored).returncode == 0
    (tmp_path / "plain").write_bytes(compress(run, profile, plain)[1])
    back = read_safetensors(restored.read_bytes())[1]["kv"][1]
    values = np.frombuffer(back, "<u2").reshape(2, LAYERS, 70, HEADS, CHANNELS)
    read = restore((tmp_path / "plain").read_bytes(), Profile(profile.read_bytes()))
    for index, role in enumerate(("key", "value")):
        for layer in range(LAYERS):
            expected = np.frombuffer(read[f"layer_{layer}_{role}"], "<u2")
            found = values[index, layer].transpose(1, 0, 2)
            assert (found == expected.reshape(HEADS, 70, CHANNELS)).all()
    assert run(*flags, "-output", restored, "-tokens", "10:25").returncode == 0
    part = read_safetensors(restored.read_bytes())[1]["kv"][1]
    assert part == values[:, :, 10:25].tobytes()


def test_training_twice_gives_the_same_file(run: Run, tmp_path: Path) -> None:
    first = train(run, tmp_path).read_bytes()
    assert train(run, tmp_path).read_bytes() == first


def metric(weight: float) -> bytes:
    """A metric under which errors of the first layer's values matter more."""
    tensors = []
    for layer in range(LAYERS):
        for role in ("key", "value"):
            factor = weight if (layer, role) == (0, "value") else 1.0
            matrix = factor * (np.eye(HEADS * CHANNELS) + 0.01)
            tensors.append(tensor(f"layer_{layer}_{role}", "F32", matrix, matrix.shape))
    return write(tensors)


@pytest.mark.parametrize(
    ("ratio", "tokens", "warned"), [(1000, 512, True), (1000, 511, False), (1, 512, False)]
)
def test_a_cache_that_takes_more_bytes_than_expected_warns(
    run: Run, tmp_path: Path, ratio: float, tokens: int, *, warned: bool
) -> None:
    """By the whole of its groups, from 512 tokens on; the report has what is expected."""
    presets = f"ultra=1:{ratio}:0.01:0.02:0.25:0.75"
    profile = train(run, tmp_path, "-rope-theta", 10000, "-train-presets", presets)
    header, _ = read_safetensors(profile.read_bytes())
    assert header["kvcompress.profile"] == "3"
    assert header["kvcompress.profile.expectations"] == f"{ratio}/0.01/0.02/0.25/0.75"
    (tmp_path / "in").write_bytes(cache(3, tokens))
    flags = ("-input", tmp_path / "in", "-metrics-only", "-codec", "klt:ultra")
    report = succeed(run(*flags, "-profile", profile))
    codes = [each["code"] for each in report["warnings"]]
    assert codes == (["PROFILE_UNUSUAL"] if warned else [])
    assert report["profile"]["expected"] == pytest.approx(
        {
            "ratio": ratio,
            "divergence": 0.01,
            "int4_divergence": 0.02,
            "least_share": 0.25,
            "most_share": 0.75,
        }
    )


@pytest.mark.parametrize("shares", ["0.5:0.25", "0:0.5", "-1:1", "0.5:2000000"])
def test_shares_that_are_none_are_refused(run: Run, tmp_path: Path, shares: str) -> None:
    (tmp_path / "caches").mkdir()
    (tmp_path / "caches" / "0").write_bytes(cache(0, 64))
    flags = ("-train-profile", tmp_path / "p", "-model-label", "m", "-profile-layers", "2")
    presets = f"ultra=1:4:0.01:0.02:{shares}"
    refuse(run(*flags, "-train-presets", presets, tmp_path / "caches" / "0"), "expectation")


def test_a_profile_with_a_metric_and_expectations(run: Run, tmp_path: Path) -> None:
    (tmp_path / "metric").write_bytes(metric(5.0))
    presets = "high=0.25:4.5:0.001:0.02,max=1:8:0.01:0.02"
    flags = ("-train-metric", tmp_path / "metric", "-train-note", "by hand")
    profile = train(run, tmp_path, "-rope-theta", 10000, "-train-presets", presets, *flags)
    header, _ = read_safetensors(profile.read_bytes())
    assert header["kvcompress.profile.expectations"] == "4.5/0.001/0.02,8/0.01/0.02"
    assert header["kvcompress.profile.training"].endswith("metric=given by hand")
    source, artefact, back = (tmp_path / name for name in ("in", "out", "back"))
    source.write_bytes(cache(3, 100))
    done = run("-input", source, "-output", artefact, "-codec", "klt:high", "-profile", profile)
    assert done.returncode == 0, done.stderr
    done = run("-decompress", "-input", artefact, "-output", back, "-profile", profile)
    assert done.returncode == 0, done.stderr
    _, tensors = read_safetensors(back.read_bytes())
    read = restore(artefact.read_bytes(), Profile(profile.read_bytes()))
    assert read == {name: data for name, (_, data) in tensors.items()}


def test_contract_holds_bounds_and_auto_takes_it(run: Run, tmp_path: Path) -> None:
    profile = train(run, tmp_path, "-rope-theta", 10000, "-train-contract")
    source, artefact, back = (tmp_path / name for name in ("in", "out", "back"))
    source.write_bytes(cache(3, 300))
    sizes = {}
    for codec, with_profile in (("klt:contract", True), ("auto", True), ("auto", False)):
        flags = ("-profile", profile) if with_profile else ()
        command = ("-input", source, "-output", artefact, "-force", "-codec", codec, *flags)
        done = run(*command)
        assert done.returncode == 0, done.stderr
        sizes[codec, with_profile] = artefact.stat().st_size
        if not with_profile:
            continue
        assert json.loads(done.stdout)["tensors_failed"] == 0
        done = run("-decompress", "-input", artefact, "-output", back, "-force", *flags)
        assert done.returncode == 0, done.stderr
        _, tensors = read_safetensors(back.read_bytes())
        read = restore(artefact.read_bytes(), Profile(profile.read_bytes()))
        assert read == {name: data for name, (_, data) in tensors.items()}
    assert sizes["auto", True] < sizes["auto", False]


def test_without_the_profile_its_digest_and_label_are_named(run: Run) -> None:
    done = run("-verify", GOLDEN / "cache.kvc.safetensors")
    assert done.returncode == 1
    profile = Profile((GOLDEN / "tiny.profile").read_bytes())
    assert profile.digest.encode() in done.stderr + done.stdout
    assert b"tiny" in done.stderr
    info = run("-info", GOLDEN / "cache.kvc.safetensors")
    assert json.loads(info.stdout)["profile"] == {"digest": profile.digest, "label": "tiny"}


def test_another_profile_does_not_do(run: Run, tmp_path: Path) -> None:
    other = train(run, tmp_path, "-rope-theta", 0)
    assert other.read_bytes() != (GOLDEN / "tiny.profile").read_bytes()
    done = run("-verify", GOLDEN / "cache.kvc.safetensors", "-profile", other)
    assert done.returncode == 1
    damaged = tmp_path / "damaged.profile"
    damaged.write_bytes(other.read_bytes()[:-1])
    done = run("-verify", GOLDEN / "cache.kvc.safetensors", "-profile", damaged)
    assert done.returncode == 1
    assert b"the profile is damaged" in done.stderr


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("cache", "tiny"),
        ("contract", "contract"),
        ("trellis", "tiny"),
        ("contract-trellis", "contract"),
        ("lossless", "tiny"),
    ],
)
def test_the_golden_artefact_decodes_to_the_golden_cache(
    run: Run, tmp_path: Path, name: str, trained: str
) -> None:
    back = tmp_path / "back"
    artefact, profile = GOLDEN / f"{name}.kvc.safetensors", GOLDEN / f"{trained}.profile"
    done = run("-decompress", "-input", artefact, "-output", back, "-profile", profile)
    assert done.returncode == 0, done.stderr
    assert back.read_bytes() == (GOLDEN / f"{name}.safetensors").read_bytes()
    _, tensors = read_safetensors(back.read_bytes())
    read = restore(artefact.read_bytes(), Profile(profile.read_bytes()))
    assert read == {name: data for name, (_, data) in tensors.items()}


def resealed(artefact: bytes, *changes: tuple[bytes, bytes]) -> bytes:
    """An artefact with changes of equal length in its header, and the right checksum."""
    size = 8 + int.from_bytes(artefact[:8], "little")
    header = artefact[:size]
    for old, new in changes:
        assert len(old) == len(new)
        assert old in header
        header = header.replace(old, new)
    return seal(header) + artefact[size:]


def test_the_offline_reader_knows_the_header_and_refuses_the_payloads() -> None:
    """It took the name of the profile for damage."""
    for name, trained in (("cache", "tiny"), ("contract", "contract")):
        artefact = (GOLDEN / f"{name}.kvc.safetensors").read_bytes()
        profile = Profile((GOLDEN / f"{trained}.profile").read_bytes())
        header = payload.read_header(artefact)
        assert header.profile == (profile.digest, profile.label)
        assert [entry.layer for entry in header.tensors] == [0, 0, 1, 1, 2, 2, 3, 3]
        with pytest.raises(payload.PayloadError, match="needs its profile") as caught:
            payload.read(artefact)
        assert (caught.value.code, caught.value.tensor) == ("UNIMPLEMENTED", "layer_0_key")


@pytest.mark.parametrize(
    "change",
    [
        (b"klt-profile:contract", b"klt-profile:CONTRACT"),
        (b'"kvcompress.profile"', b'"kvcompress.profilf"'),
        (b"sha256:2ca3", b"sha256:2CA3"),
        (b"kvcompress.profile", b"kvcompress.label.a"),
        (b" v3 1ee96b9e93abd99ec79eb4176b5a4a5b", b" v3 -                               "),
    ],
)
def test_the_offline_reader_refuses_headers_that_break_the_rules(
    run: Run, tmp_path: Path, change: tuple[bytes, bytes]
) -> None:
    artefact = resealed((GOLDEN / "contract.kvc.safetensors").read_bytes(), change)
    with pytest.raises(payload.PayloadError):
        payload.read_header(artefact)
    path = tmp_path / "artefact"
    path.write_bytes(artefact)
    assert run("-verify", path, "-profile", GOLDEN / "contract.profile").returncode == 1
