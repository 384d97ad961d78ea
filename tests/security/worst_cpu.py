# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures the most processor time that a byte buys, for each codec and byte compressor.

Usage: worst_cpu.py [CODEC ...]     (default: all; KVCOMPRESS_BIN_DIR as for the tests)

Caches of several shapes and contents are compressed by `kv-compress` and verified again, in one
thread. Prints a row of Markdown for each codec: the most seconds of the processor for each MB of
input that is encoded, for each MB of an artefact that is decoded, and for each MB of its output;
start of the program taken away, and behind each figure the cache that it is from. What takes less
than a two-hundredth of a second is not counted.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy
import numpy.typing as npt

from kvcompress import Client

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("KVCOMPRESS_BIN_DIR", REPOSITORY / "bin")).resolve() / "kv-compress"
LEAST = 0.005
MB = 1e6
# Tensors, and [batches, heads, tokens, channels] of each: that of a model; with large heads; many
# heads of few tokens; one long head; as many batches as there can be; tokens of one channel.
SHAPES = {
    "heads": (8, (1, 8, 1024, 128)),
    "wide": (4, (1, 1, 512, 4096)),
    "short": (8, (1, 512, 16, 128)),
    "long": (1, (1, 1, 65536, 128)),
    "batches": (8, (1024, 8, 1, 128)),
    "narrow": (1, (1, 1, 8 << 20, 1)),
}
Values = npt.NDArray[numpy.float32]
Fill = Callable[[numpy.random.Generator, int, int], Values]
CONTENTS: dict[str, Fill] = {
    "zeros": lambda _, count, __: numpy.zeros(count, numpy.float32),
    "noise": lambda random, count, _: random.standard_normal(count, numpy.float32),
    "equal tokens": lambda random, count, channels: numpy.resize(
        random.standard_normal(channels, numpy.float32), count
    ),
    "large values": lambda random, count, _: numpy.where(
        random.random(count) < 0.02, 6e4 * random.standard_normal(count, numpy.float32), 0
    ).astype(numpy.float32),
    "spikes": lambda random, count, _: numpy.where(random.random(count) < 1e-3, 1e4, 1e-4).astype(
        numpy.float32
    ),
}
# So many times the tensors, as little is left of them and that is decoded soon.
TIMES = {"zeros": 8}
CACHES = [(shape, content) for shape in SHAPES for content in CONTENTS]
# Of the layers of a profile, which takes long to train: zeros of as many more tokens instead.
SHAPES["layers"] = (8, (1, 4, 1024, 128))
SHAPES["tokens"] = (1, (1, 4, 8192, 128))
CACHES_OF_PROFILES = [("layers", each) for each in CONTENTS if each not in TIMES]
CACHES_OF_PROFILES += [("tokens", each) for each in TIMES]
PROFILED = "klt-profile"
# Also with these parameters, which are slower than those that a codec has by itself.
SLOWER = {"klt": ["klt:0.05,0.05,128"]}
# Behind a byte compressor it is the bytes that matter.
SHAPES_OF_STAGES = ["heads", "batches"]


class Cost(NamedTuple):
    """Seconds for each MB, and of which cache."""

    seconds: float
    cache: str

    def __str__(self) -> str:
        """As in the table."""
        return f"{self.seconds:.2g} ({self.cache})"


class Costs(NamedTuple):
    """Of one codec and one cache, or the largest of several."""

    encode: Cost
    decode: Cost
    restore: Cost


def processor_seconds(*flags: str, refusable: bool = False) -> tuple[float, bool]:
    """What a run of kv-compress takes, in one thread but for training, and whether it succeeded."""
    process = subprocess.Popen([BINARY, *flags], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 and not refusable:
        raise subprocess.CalledProcessError(process.returncode, flags)
    return usage.ru_utime + usage.ru_stime, process.returncode == 0


def write_cache(path: Path, shape: str, content: str, seed: int = 1) -> None:
    """A cache of BF16, of keys and values in turn."""
    tensors, dimensions = SHAPES[shape]
    tensors *= TIMES.get(content, 1)
    count = int(numpy.prod(dimensions))
    random = numpy.random.default_rng(seed)
    entries = {
        f"layer_{i // 2}_{('key', 'value')[i % 2]}": {
            "dtype": "BF16",
            "shape": dimensions,
            "data_offsets": [2 * count * i, 2 * count * (i + 1)],
        }
        for i in range(tensors)
    }
    text = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(tensors):
            values = CONTENTS[content](random, count, dimensions[-1])
            file.write((values.view(numpy.uint32) >> 16).astype("<u2").tobytes())


def train(folder: Path, preset: str) -> Path:
    """A profile of noise for the shape of a model, with all the components that there can be."""
    cache, profile = folder / "training", folder / f"noise.{preset}.profile"
    write_cache(cache, "layers", "noise", seed=2)
    flags = ["-profile-layers", "1", "-profile-components", "1024", "-rope-theta", "0"]
    contract = preset == "contract"
    flags += ["-train-contract"] if contract else ["-train-presets", f"{preset}=0.5"]
    processor_seconds("-train-profile", str(profile), "-model-label", "noise", *flags, str(cache))
    return profile


def measure(folder: Path, cache: Path, name: str, flags: list[str], start: float) -> Costs:
    """Encodes a cache and decodes it again."""
    artefact = folder / "artefact"
    threads = ["-threads", "1", "-force", "-quiet"]
    profile = flags[flags.index("-profile") :] if "-profile" in flags else []
    encode, made = processor_seconds(
        *("-input", str(cache), "-output", str(artefact), *threads, *flags, "-effort", "best"),
        refusable="klt:contract" in flags,
    )

    def cost(seconds: float, size: int) -> Cost:
        work = seconds - start
        return Cost(work / (size / MB) if work > LEAST else 0, name)

    input_size = cache.stat().st_size
    if not made:  # a profile that does not suit the cache
        return Costs(cost(encode, input_size), Cost(0, name), Cost(0, name))
    decode, _ = processor_seconds("-verify", str(artefact), *threads, *profile)
    size = artefact.stat().st_size
    return Costs(cost(encode, input_size), cost(decode, size), cost(decode, input_size))


def largest(all_costs: list[Costs]) -> Costs:
    """The largest of each."""
    return Costs(*(max(costs) for costs in zip(*all_costs, strict=True)))


Choice = tuple[str, list[list[str]], list[tuple[str, str]]]


def choices(folder: Path, wanted: list[str]) -> Iterator[Choice]:
    """Codecs, the flags that each is tried with, and shapes and contents of caches."""
    with Client() as client:
        info = client.server_info()
    for codec in info.codecs:
        for stage in ("", *info.byte_compressors):
            name = f"{codec.name}+{stage}" if stage else codec.name
            if codec.name != PROFILED and (not wanted or name in wanted):
                flags = [["-codec", each] for each in (name, *SLOWER.get(name, []))]
                yield (
                    name,
                    flags,
                    [each for each in CACHES if not stage or each[0] in SHAPES_OF_STAGES],
                )
    if not wanted or PROFILED in wanted:
        flags = [
            ["-codec", f"klt:{preset}", "-profile", str(train(folder, preset))]
            for preset in ("ultra", "contract")
        ]
        yield PROFILED, flags, CACHES_OF_PROFILES


def main(wanted: list[str]) -> None:
    """Prints the table."""
    os.environ.setdefault("KVCOMPRESS_BIN_DIR", str(BINARY.parent))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        caches = {}
        only_profiles = wanted == [PROFILED]
        for shape, content in {*([] if only_profiles else CACHES), *CACHES_OF_PROFILES}:
            caches[shape, content] = folder / f"{shape}-{content}"
            write_cache(caches[shape, content], shape, content)
        start = min(processor_seconds("-version")[0] for _ in range(5))
        print("| codec | encode, s/MB of input | decode, s/MB of artefact | of output |")
        print("| --- | --- | --- | --- |")
        for codec, tried, of in choices(folder, wanted):
            costs = largest(
                [
                    measure(folder, caches[shape, content], f"{shape}, {content}", flags, start)
                    for flags in tried
                    for shape, content in of
                ]
            )
            print(f"| `{codec}` | {costs.encode} | {costs.decode} | {costs.restore} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
