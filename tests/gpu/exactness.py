# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Decodes golden files and a crafted corpus on a device, and holds them against references.

    python exactness.py cuda|cpu [--small]

What golden files restore to is recorded, and NumPy's readers, which are written from FORMAT.md
alone, give what crafted and damaged payloads decode to. Prints a line for each set. Exit status 1
where an element differs, or where one refuses what the other takes.
"""

import json
import struct
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]
import xxhash
from interpreting import fast_interpreter

from kvcompress import load_torch, payload
from kvcompress.gpu import Decoder, Encoder
from kvcompress.payload import PayloadError
from oracle import encoder, profiles
from oracle.crafted_profiles import Group, gap, make_profile
from oracle.source import Tensor, read, write

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
PROFILES = {"cache": "tiny", "trellis": "tiny", "contract": "contract"}
PROFILES |= {"contract-trellis": "contract"}
CODECS = ("int4-32", "int4-64", "int4-128", "int8-64", "lossless")
CODED = tuple(f"{form}{codec}-" for codec in ("ecsq", "klt") for form in ("", "rope-", "latent-"))
_FLIPS = 200  # damaged payloads of a form
_SMALL = 500  # elements

Bytes = dict[str, bytes]


class Outcome(NamedTuple):
    """How many cases there were, and how many came out wrong."""

    cases: int
    wrong: int


def raw(tensor: Any) -> bytes:  # noqa: ANN401
    """The bytes of the elements."""
    flat = tensor.contiguous().reshape(-1).cpu()
    return flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""


def decoded(decoder: Decoder, artefact: bytes) -> Bytes | None:
    """What the device decodes; None where it refuses."""
    try:
        return {name: raw(each) for name, each in decoder.decode(artefact).tensors.items()}
    except PayloadError:
        return None


def count(pairs: Iterator[bool]) -> Outcome:
    """Counts cases and those that are false."""
    found = list(pairs)
    return Outcome(len(found), found.count(False))


def golden_profiles(device: str, small: bool) -> Iterator[bool]:
    """Artefacts of `klt-profile`, and the caches that they restore to."""
    folder = GOLDEN / "profile"
    for name, profile in PROFILES.items():
        if small and name != "cache":
            continue
        decoder = Decoder(folder / f"{profile}.profile", device)
        expected = {each.name: each.data for each in read_file(folder / f"{name}.safetensors")}
        yield decoded(decoder, (folder / f"{name}.kvc.safetensors").read_bytes()) == expected


def read_file(path: Path) -> list[Tensor]:
    """The tensors of a safetensors file."""
    return read(path.read_bytes())[0]


def golden_singles(device: str, small: bool) -> Iterator[bool]:
    """Artefacts whose payloads are decoded one by one, and the digests of what they restore to."""
    decoder = Decoder(device=device)
    for folder, wanted in (("v1", CODECS), ("v1-service", CODED)):
        index = json.loads((GOLDEN / folder / "index.json").read_text())
        for name, entry in index.items():
            plain = folder == "v1" and name.split(".")[1] in wanted
            coded = folder != "v1" and name.startswith(wanted) and "zstd" not in name
            if not (plain or coded) or (small and not name.startswith("names.")):
                continue
            artefact = (GOLDEN / folder / name).read_bytes()
            header = payload.read_header(artefact)
            of = {e.view[0].name if e.view else e.name: e for e in header.tensors}
            found = decoder.decode(artefact).tensors
            rows = [Tensor(n, of[n].dtype, tuple(t.shape), raw(t)) for n, t in found.items()]
            digest = xxhash.xxh3_128_hexdigest(write(rows, header.metadata))
            yield digest == entry["restored_xxh3_128"]


def crafted_group(seed: int, *, trellis: bool) -> Group:
    """A payload of `klt-profile` with all that the format has."""
    rng = np.random.default_rng(seed)
    members = ("k0:2x12:0", "v0:1x5:-", "k1:1x7:1", "v1:3x16:-")
    profile = make_profile(
        members, (("interleaved", 4), ("halves", 3)), rng.integers(4, 36, 37), seed
    )
    quanta = rng.integers(-4, 5, (1, 20, 37))
    quanta[0, 7, :4] = 40, -130, 40000, -(1 << 20)
    sinks = b"".join(
        b"\x80\x3c" + rng.integers(-127, 128, width).astype("i1").tobytes()
        for heads, width in ((2, 12), (1, 5), (1, 7), (3, 16))
        for _ in range(heads)
    )
    exceptions = [gap(3) + b"\0\x41" + gap(130) + b"\0\x41", b"", gap(0) + b"\0\x41", b""]
    offsets = [int(each) for each in rng.integers(-16, 20, 21)]
    options = {"shift": 2, "step": 0.75, "position": (1 << 32) - 7, "trellis": trellis}
    return Group(
        profile, quanta, offsets=offsets, sink_tokens=1, sinks=sinks, units=[0.5, 1, 3, 2.0**-20],
        exceptions=exceptions, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def damaged_groups(device: str, small: bool) -> Iterator[bool]:
    """Payloads of `klt-profile` with flipped bits: refused, or decoded as NumPy's reader does.

    It does not check all rules of headers; `tests/integrations` holds refusals against the CPU's.
    """
    for trellis in (False, True):
        group = crafted_group(5, trellis=trellis)
        whole, decoder = group.payload(), Decoder(group.profile, device)
        rng = np.random.default_rng(6)
        for number in range(3 if small else _FLIPS):
            flipped = bytearray(whole)
            place = int(rng.integers(8 * (len(whole) if number % 2 else 32)))
            if number:
                flipped[place // 8] ^= 1 << place % 8
            artefact = group.artefact(bytes(flipped))
            found = decoded(decoder, artefact)
            refused = found is None and number > 0
            yield refused or found == reference(artefact, group)


def reference(artefact: bytes, group: Group) -> Bytes | None:
    """What NumPy's reader of groups returns; None where it refuses."""
    try:
        return profiles.restore(artefact, group.read)
    except (PayloadError, ValueError, AssertionError, IndexError, struct.error):
        return None


def damaged_singles(device: str, small: bool) -> Iterator[bool]:
    """Golden payloads of the other codecs with flipped bits, with digests made right again."""
    decoder = Decoder(device=device)
    names = [f"v1/{source}.{codec}" for codec in CODECS for source in ("f16_edges", "bf16_edges")]
    names += [f"v1-service/ecsq-{preset}" for preset in ("contract", "high", "0.05,8")]
    names += [f"v1-service/klt-{form}" for form in ("0.9,0.9,64,0.45-best", "1,1,5", "ultra")]
    for name in names[:3] if small else names:
        good = (GOLDEN / f"{name}.safetensors").read_bytes()
        entries = [e for e in payload.read_header(good).tensors if 0 < e.end - e.begin < 2000]
        rng = np.random.default_rng(7)
        for _ in range(2 if small else _FLIPS // 4):
            entry = entries[int(rng.integers(len(entries)))]
            size = entry.end - entry.begin
            bad = bytearray(good)
            place = int(rng.integers(8 * (size if rng.integers(2) else min(size, 60))))
            bad[entry.begin + place // 8] ^= 1 << place % 8
            digest = xxhash.xxh3_128_hexdigest(bytes(bad[entry.begin : entry.end]))
            begin = 8 + int.from_bytes(good[:8], "little")
            header = bytes(bad[:begin]).replace(entry.digest.encode(), digest.encode())
            artefact = encoder.seal(header) + bytes(bad[begin:])
            yield decoded(decoder, artefact) == offline(artefact)


def offline(artefact: bytes) -> Bytes | None:
    """What kvcompress.payload reads; None where it refuses."""
    try:
        return {name: each.tobytes() for name, each in payload.read(artefact).items()}
    except PayloadError:
        return None


def encoded_integers(device: str, small: bool) -> Iterator[bool]:
    """Artefacts of `int4` and `int8`, byte for byte those of the NumPy encoder."""
    rng = np.random.default_rng(8)
    for codec, group in (("int4", 32), ("int8", 64)):
        for tokens in (3,) if small else (1, 3, 70, 1000):
            values = rng.standard_normal((1, 3, tokens, 24)).astype(np.float16)
            file = write([Tensor("layer_0_key", "F16", values.shape, values.tobytes())])
            found = Encoder(f"{codec}:{group}", device).encode(
                {"layer_0_key": torch.from_numpy(values).to(device)}
            )
            yield found.artefact == encoder.encode(file, group, codec=codec).data


def encoded_ecsq(device: str, small: bool) -> Iterator[bool]:
    """Payloads of `ecsq`, byte for byte those of golden files that the service still writes."""
    folder = GOLDEN / "v1-service"
    index = json.loads((folder / "index.json").read_text())
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for name, entry in index.items():
        source = entry.get("source", "source.safetensors")
        if entry["codec"] == "ecsq" and "last_stage" not in entry and "latent" not in source:
            way = entry.get("encoder", 1), name
            key = source, entry["preset"]
            newest[key] = max(way, newest.get(key, way))
    for (source, preset), (_, name) in newest.items():
        if small and (preset == "max" or source != "source.safetensors"):
            continue
        tensors = load_torch((folder / source).read_bytes())
        own = {
            each: tensor.to(device)
            for each, tensor in tensors.items()
            if not small or tensor.numel() < _SMALL
        }
        encoder = Encoder(f"ecsq:{preset}", device, model_config=index[name].get("model_config"))
        header = payload.read_header((folder / name).read_bytes())
        expected = {each.name: each.digest for each in header.tensors}
        for found in encoder.encode(own, metadata=header.metadata).report.tensors:
            yield found.digest == expected[found.name]


SETS = {
    "golden files of klt-profile": golden_profiles,
    "golden files of other codecs": golden_singles,
    "crafted and damaged groups": damaged_groups,
    "damaged payloads of other codecs": damaged_singles,
    "int4 and int8 of NumPy's encoder": encoded_integers,
    "ecsq of golden files": encoded_ecsq,
}


def main(device: str, small: bool) -> int:
    """Runs all sets."""
    wrong = 0
    with fast_interpreter() if device == "cpu" else nullcontext():
        for name, cases in SETS.items():
            outcome = count(cases(device, small))
            wrong += outcome.wrong
            print(f"{name:36} {outcome.cases:5} cases {outcome.wrong:5} wrong", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--small" in sys.argv))
