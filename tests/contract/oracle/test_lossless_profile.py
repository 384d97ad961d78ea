# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""`lossless` with a profile: every bit comes back, and a reader of FORMAT.md agrees."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from kv_compress import refuse, succeed

from kvcompress import Client, FailedPreconditionError, InvalidArgumentError, payload
from oracle.profiles import Profile, restore
from oracle.residuals import BLOCK_ELEMENTS
from oracle.server import Server, running_server
from oracle.source import Tensor, read, tensor, write
from oracle.test_profiles import GOLDEN, HEADS, LAYERS, Run, cache, payloads, resealed, run, train

__all__ = ["run"]

SIGNALS = 6
Places = npt.NDArray[np.int64] | slice
TINY = Profile((GOLDEN / "tiny.profile").read_bytes())
# NaN of both signs and with payloads, infinities, zeros, subnormals, and the largest.
SPECIAL = {
    "BF16": (0x7FC0, 0xFFC1, 0x7F81, 0xFFFF, 0x7F80, 0xFF80, 0, 0x8000, 1, 0x807F, 0x7F7F, 0xFF7F),
    "F16": (0x7E00, 0xFE01, 0x7C01, 0xFFFF, 0x7C00, 0xFC00, 0, 0x8000, 1, 0x83FF, 0x7BFF, 0xFBFF),
}


class Form(NamedTuple):
    """What a cache is like.

    Attributes:
        flat: Whether tensors have no dimension of batches.
    """

    dtype: str
    shape: tuple[int, int, int, int]
    flat: bool = False


def mixed(seed: int, form: Form) -> bytes:
    """A cache whose layers are mixtures of the same signals."""
    mixing, rng = np.random.default_rng(0), np.random.default_rng(seed)
    batches, heads, tokens, channels = form.shape
    signals = rng.standard_normal((batches, tokens, SIGNALS))
    tensors = []
    for layer in range(LAYERS):
        for role in ("key", "value"):
            mix = mixing.standard_normal((heads, SIGNALS, channels))
            noise = 0.05 * rng.standard_normal(form.shape)
            values = np.einsum("bts,hsc->bhtc", signals, mix) + noise
            shape = form.shape[1:] if form.flat else form.shape
            tensors.append(tensor(f"layer_{layer}_{role}", form.dtype, values, shape))
    return write(tensors)


def changed(file: bytes, places: Places, bits: npt.ArrayLike, names: str = "") -> bytes:
    """A file with other elements at these places of its tensors, or of those of `names`."""
    tensors, metadata = read(file)
    changed_tensors = []
    for each in tensors:
        elements = np.frombuffer(each.data, "<u2").copy()
        if names in each.name:
            elements[places] = bits
        changed_tensors.append(Tensor(each.name, each.dtype, each.shape, elements.tobytes()))
    return write(changed_tensors, metadata)


class Lossless:
    """A trained profile, and what is made with it."""

    def __init__(self, run: Run, folder: Path, profile: Path) -> None:
        """Takes the profile."""
        self.run, self.profile = run, profile
        self.source, self.artefact, self.back = (folder / name for name in ("in", "out", "back"))

    def compress(self, source: bytes, *flags: object) -> bytes:
        """The artefact of a cache, whose report says that nothing is lost."""
        self.source.write_bytes(source)
        command = ("-input", self.source, "-output", self.artefact, "-force")
        report = succeed(self.run(*command, "-codec", "lossless", "-profile", self.profile, *flags))
        assert (report["rmse"], report["max_error"], report["codec"]) == (0, 0, "lossless")
        return self.artefact.read_bytes()

    def restored(self, *flags: object) -> bytes:
        """What kv-compress restores of the artefact."""
        command = ("-output", self.back, "-force", "-profile", self.profile)
        succeed(self.run("restore", *command, *flags, self.artefact))
        return self.back.read_bytes()

    def keeps(self, source: bytes, *flags: object, falls_back: bool = False) -> bytes:
        """Requires that every bit comes back; groups that fall back have `lossless` alone."""
        artefact = self.compress(source, *flags)
        used = codecs(artefact)
        assert used <= {"lossless-profile:high", *(["lossless"] if falls_back else [])}
        assert self.restored() == source
        if used != {"lossless"}:
            sources = {each.name: each.data for each in read(source)[0]}
            for name, data in restore(artefact, Profile(self.profile.read_bytes())).items():
                assert sources.pop(name) == data, name
            assert not sources or falls_back
        return artefact

    def refuses(self, artefact: bytes) -> None:
        """Requires that kv-compress takes an artefact for damaged."""
        self.artefact.write_bytes(artefact)
        done = self.run("-verify", self.artefact, "-profile", self.profile)
        assert done.returncode == 1
        assert b"the artefact is damaged" in done.stderr, done.stderr


def codecs(artefact: bytes) -> set[str]:
    """Those of all tensors and views."""
    return {entry.codec for entry in payload.read_header(artefact).tensors}


@pytest.fixture
def lossless(run: Run, tmp_path: Path) -> Lossless:
    """A profile for the caches of test_profiles.py."""
    return Lossless(run, tmp_path, train(run, tmp_path, "-rope-theta", 10000))


def trained_for(run: Run, folder: Path, form: Form, theta: int) -> Lossless:
    """A profile for caches of a form."""
    paths = []
    for seed in (1, 2):
        paths.append(folder / f"training-{seed}")
        own = (1, form.shape[1], 150, form.shape[3])
        paths[-1].write_bytes(mixed(seed, Form("BF16", own)))
    profile = folder / "own.profile"
    flags = ("-model-label", "own", "-profile-layers", 2, "-profile-components", 40)
    succeed(run("-train-profile", profile, *flags, "-rope-theta", theta, *paths))
    return Lossless(run, folder, profile)


@pytest.mark.parametrize("effort", ["fast", "balanced", "best"])
@pytest.mark.parametrize(
    ("dtype", "tokens", "batches"), [("BF16", 300, 1), ("F16", 300, 3), ("BF16", 1, 1)]
)
def test_every_bit_comes_back(
    lossless: Lossless, effort: str, dtype: str, tokens: int, batches: int
) -> None:
    source = cache(3, tokens, dtype, batches)
    artefact = lossless.keeps(source, "-effort", effort, falls_back=tokens == 1)
    if tokens > 1:
        assert {data[1] & 20 for data in payloads(artefact).values() if data} == {16}
    assert lossless.compress(source, "-effort", effort, "-threads", 1) == artefact
    assert lossless.compress(source, "-effort", effort, "-threads", 2) == artefact
    if (dtype, tokens) == ("BF16", 300):
        plain = lossless.source.with_name("plain")
        succeed(lossless.run("compress", lossless.source, "-o", plain, "-codec", "lossless"))
        assert len(artefact) < 0.7 * plain.stat().st_size


@pytest.mark.parametrize(
    ("form", "theta"),
    [
        (Form("BF16", (1, 2, 400, 64)), 10000),
        (Form("F16", (2, 1, 400, 64)), 0),
        (Form("BF16", (1, 3, 400, 33), flat=True), 0),
        (Form("F16", (1, 2, 400, 80), flat=True), 500),
        (Form("BF16", (1, 1, 2100, 33)), 0),
    ],
)
def test_heads_of_any_size(run: Run, tmp_path: Path, form: Form, theta: int) -> None:
    assert (form.shape[2] > BLOCK_ELEMENTS // form.shape[3]) == (form.shape[2] == 2100)
    own = trained_for(run, tmp_path, form, theta)
    own.keeps(mixed(3, form))


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_elements_that_are_not_finite_and_small_ones(lossless: Lossless, dtype: str) -> None:
    """Among sinks, in a token of their own, in whole tensors, and one here and there."""
    rng, tokens = np.random.default_rng(4), 300
    source, special = cache(3, tokens, dtype), np.array(SPECIAL[dtype], "<u2")
    size = 2 * tokens * 16
    here_and_there = rng.integers(0, size, 40)
    lossless.keeps(changed(source, here_and_there, rng.choice(special, 40)))
    lossless.keeps(changed(source, slice(0, 12), special))
    lossless.keeps(changed(source, slice(16 * 30, 16 * 31), special[0]))
    odd, any_bits = rng.choice(special, size), rng.integers(0, 1 << 16, size)
    lossless.keeps(changed(source, slice(None), odd, "layer_1_key"), falls_back=True)
    lossless.keeps(changed(source, slice(None), any_bits, "layer_2"), falls_back=True)
    for bits in special:
        lossless.keeps(changed(source, slice(None), bits), falls_back=True)


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_what_is_measured_is_what_lossless_alone_measures(lossless: Lossless, dtype: str) -> None:
    """Elements that are not finite come back too, and are no distortion."""
    source = changed(cache(3, 60, dtype), slice(0, 12), np.array(SPECIAL[dtype], "<u2"))
    lossless.source.write_bytes(source)
    command = ("-input", lossless.source, "-metrics-only", "-codec", "lossless")
    alone = succeed(lossless.run(*command))
    with_profile = succeed(lossless.run(*command, "-profile", lossless.profile))
    for key in ("rmse", "mae", "max_error", "cosine_similarity", "snr_db", "first_token_rmse"):
        assert with_profile[key] == alone[key], key
    for key in ("quality_level", "quality_passed", "violations", "tensors_failed"):
        assert with_profile[key] == alone[key], key


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_caches_that_the_profile_is_not_for(lossless: Lossless, dtype: str) -> None:
    """Of other scales, down to subnormals and up to the largest, and of no order at all."""
    sources, _ = read(cache(3, 50, dtype))
    for scale in (2.0**-40, 2.0**-14, 2.0**10, 1e30):
        with np.errstate(over="ignore"):
            scaled = write(
                tensor(each.name, dtype, scale * each.values, each.shape) for each in sources
            )
        lossless.keeps(scaled, falls_back=True)
    rng = np.random.default_rng(5)
    noise = write(replace(each, data=rng.bytes(len(each.data))) for each in sources)
    artefact = lossless.keeps(noise, falls_back=True)
    assert codecs(artefact) == {"lossless"}
    assert len(artefact) < len(noise) + 2048


def test_a_type_for_each_group_and_in_one(lossless: Lossless) -> None:
    halves = [read(cache(3, 300, dtype))[0] for dtype in ("BF16", "F16")]
    lossless.keeps(write([*halves[0][: len(halves[0]) // 2], *halves[1][len(halves[1]) // 2 :]]))
    within = [pair[i % 2] for i, pair in enumerate(zip(*halves, strict=True))]
    lossless.keeps(write(within))


@pytest.mark.parametrize("window", [(0, 1), (2, 9), (4090, 4100), (4300, 4301)])
def test_a_part_is_the_same_as_in_the_source(lossless: Lossless, window: tuple[int, int]) -> None:
    """Of 4,301 tokens, which are two blocks of each head."""
    source = cache(3, 4301, batches=2)
    lossless.compress(source)
    first, end = window
    for patterns in (["layer_1_value"], ["layer_0_key", "layer_3_*"], ["*"]):
        flags = [flag for pattern in patterns for flag in ("-tensors", pattern)]
        found, _ = read(lossless.restored(*flags, "-tokens", f"{first}:{end}"))
        for each in found:
            whole = next(own for own in read(source)[0] if own.name == each.name)
            elements = np.frombuffer(whole.data, "<u2").reshape(whole.shape)
            assert each.data == elements[:, :, first:end].tobytes(), each.name
        assert len(found) == {"layer_1_value": 1, "layer_0_key": 3, "*": 8}[patterns[0]]
    wanted = write([each for each in read(source)[0] if each.name == "layer_1_value"])
    assert lossless.restored("-tensors", "layer_1_value") == wanted


def test_a_layout_beside_a_profile(lossless: Lossless) -> None:
    tokens = 70
    stacked = np.array(
        [
            [
                np.frombuffer(each.data, "<u2")
                .reshape(HEADS, tokens, 16)
                .transpose(1, 0, 2)
                .reshape(tokens, HEADS * 16)
                for each in read(cache(3, tokens))[0][place::2]
            ]
            for place in (0, 1)
        ]
    )
    source = write([Tensor("kv", "BF16", stacked.shape, stacked.tobytes())])
    artefact = lossless.compress(source, "-layout", f"2ltd:heads={HEADS}")
    assert codecs(artefact) == {"lossless-profile:high"}
    assert artefact.count(b"lossless-profile") == 1
    assert lossless.restored() == source
    part, _ = read(lossless.restored("-tokens", "10:25"))
    assert part[0].data == stacked[:, :, 10:25].tobytes()


def test_tensors_of_no_group_are_lossless(lossless: Lossless) -> None:
    """Such as those of other layers, of other types, and without a place in the model."""
    tensors, _ = read(cache(3, 50))
    rng = np.random.default_rng(6)
    more = [
        tensor("layer_9_key", "BF16", rng.standard_normal((1, 2, 50, 16))),
        tensor("other", "F32", rng.standard_normal(7)),
        Tensor("ids", "I64", (3,), rng.bytes(24)),
    ]
    # The second group is not whole.
    source = write([*tensors[:-1], *more])
    artefact = lossless.compress(source)
    assert lossless.restored() == source
    found = {entry.name: entry.codec for entry in payload.read_header(artefact).tensors}
    wanted = [each.name for each in tensors if int(each.name[6]) < LAYERS // 2]
    assert found == {
        name: "lossless-profile:high" if name in wanted else "lossless" for name in found
    }
    read_back = restore(artefact, Profile(lossless.profile.read_bytes()))
    assert read_back == {each.name: each.data for each in tensors if each.name in wanted}


@pytest.fixture(scope="module")
def profiled(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the golden profile."""
    folder = tmp_path_factory.mktemp("profiles")
    shutil.copy(GOLDEN / "tiny.profile", folder / "small.profile")
    with running_server(bin_dir, "--profile-directory", str(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def user(profiled: Server) -> Iterator[Client]:
    """A client of that server."""
    with Client(profiled.target, timeout=60) as client:
        yield client


def test_a_server_with_the_profile(user: Client, client: Client) -> None:
    source = cache(3, 50)
    result = user.compress(source, codec="lossless", profile="small")
    assert result.artefact is not None
    assert result.report.profile is not None
    assert [each.profile_group for each in result.report.tensors] == [0] * 4 + [1] * 4
    assert {each.codec for each in result.report.tensors} == {"lossless-profile:high"}
    assert all(each.metrics.max_error == 0 for each in result.report.tensors)
    assert user.decompress(result.artefact).safetensors == source
    assert restore(result.artefact, TINY) == {each.name: each.data for each in read(source)[0]}
    with pytest.raises(FailedPreconditionError, match='"tiny"') as error:
        client.decompress(result.artefact)
    assert (error.value.reason, error.value.profile) == ("PROFILE_MISSING", TINY.digest)


def test_a_label_does_not_choose_the_profile(user: Client) -> None:
    """It chooses that of `klt`; artefacts of `lossless` need nothing that was not named."""
    for labels, profile in (({"model": "tiny"}, ""), ({"model": "tiny"}, "none"), ({}, "")):
        result = user.compress(cache(3, 50), codec="lossless", labels=labels, profile=profile)
        assert result.report.profile is None
        assert result.artefact is not None
        assert codecs(result.artefact) == {"lossless"}


def test_caches_of_other_types_are_refused(user: Client, lossless: Lossless) -> None:
    source = cache(3, 50, "F32")
    with pytest.raises(InvalidArgumentError, match="type F16 or BF16") as error:
        user.measure(source, codec="lossless", profile="small")
    assert error.value.reason == "PROFILE_MISMATCH"
    lossless.source.write_bytes(source)
    flags = ("-input", lossless.source, "-output", lossless.back, "-codec", "lossless")
    refuse(lossless.run(*flags, "-profile", lossless.profile), "type F16 or BF16")
    assert not lossless.back.exists()


def test_without_the_profile_the_error_names_it(lossless: Lossless) -> None:
    lossless.compress(cache(3, 50))
    done = lossless.run("-verify", lossless.artefact)
    assert done.returncode == 1
    assert Profile(lossless.profile.read_bytes()).digest.encode() in done.stderr


def test_the_offline_reader_knows_the_header_and_refuses_the_payloads(lossless: Lossless) -> None:
    artefact = lossless.compress(cache(3, 50))
    profile = Profile(lossless.profile.read_bytes())
    assert payload.read_header(artefact).profile == (profile.digest, profile.label)
    words = "lossless-profile:high needs its profile: restore it with the service"
    with pytest.raises(payload.PayloadError, match=words) as caught:
        payload.read(artefact)
    assert (caught.value.code, caught.value.tensor) == ("UNIMPLEMENTED", "layer_0_key")


def test_headers_that_break_the_rules(lossless: Lossless) -> None:
    artefact = lossless.compress(cache(3, 50))
    changes = [
        (b"lossless-profile:high BF16", b"lossless-profile:high  F32"),
        (b"lossless-profile:high BF16 1x2x50", b"lossless-profile:high F32 1x12x50"),
        (b"lossless-profile:high BF16 1x2x50", b"lossless-profile:high F64 1x12x50"),
        (b'"kvcompress.profile"', b'"kvcompress.profilf"'),
        (b"kvcompress.profile", b"kvcompress.label.a"),
    ]
    for change in changes:
        broken = resealed(artefact, change)
        with pytest.raises(payload.PayloadError):
            payload.read_header(broken)
        lossless.refuses(broken)


def test_a_preset_that_is_none_is_a_codec_that_is_not_known(lossless: Lossless) -> None:
    artefact = lossless.compress(cache(3, 50))
    lossless.artefact.write_bytes(resealed(artefact, (b"profile:high", b"profile:HIGH")))
    with pytest.raises(
        payload.PayloadError, match="unknown codec 'lossless-profile:HIGH'"
    ) as found:
        payload.read_header(lossless.artefact.read_bytes())
    assert (found.value.code, found.value.tensor) == ("UNIMPLEMENTED", "layer_0_key")
    done = lossless.run("-verify", lossless.artefact, "-profile", lossless.profile)
    assert done.returncode == 1
    assert b'lossless-profile takes the name of a preset, not "HIGH"' in done.stderr


def test_a_group_of_two_codecs(lossless: Lossless) -> None:
    """All tensors of a group have one codec, whichever has the payload."""
    artefact = lossless.compress(cache(3, 50))
    for role in (b"k0", b"v1"):
        old = b"lossless-profile:high BF16 1x2x50x16 " + role
        new = old.replace(b"lossless-profile:high", b"klt-profile:high-high")
        broken = resealed(artefact, (old, new))
        lossless.refuses(broken)
        with pytest.raises(payload.PayloadError):
            restore(broken, Profile(lossless.profile.read_bytes()))
