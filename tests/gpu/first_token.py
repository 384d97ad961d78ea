# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Measures the time to the first token after a long prefix, and prints a table.

    python first_token.py cuda|cpu [--seconds N]

The model is transformers' Llama in the shape of Llama 3 8B, in BF16 with random weights: how long
a step takes does not depend on them. The prefix is computed, or it comes from pinned memory of the
host: uncompressed, or as an artefact that `kvcompress.gpu.Decoder` decodes into the model's cache.
The cache is made up too (`synthetic.py`), so that nothing here says what compression costs in
quality. `ecsq` and others need the service, which a wheel or KVCOMPRESS_BIN_DIR brings.

On the CPU, in Triton's interpreter, the shape is tiny and times say nothing: it is a dry run.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]
import transformers  # type: ignore[import-not-found,unused-ignore]
from interpreting import fast_interpreter
from speed import Cache, environment, pinned, seconds_of
from synthetic import LLAMA, TINY, Shape, artefact, profiles

import kvcompress
from kvcompress.errors import KVCompressError
from kvcompress.gpu import Decoder, Encoder
from kvcompress.integrations.transformers import cache_from_tensors

LENGTHS = (8192, 32768)
DRY_LENGTHS = (20,)
QUESTION = 16  # tokens behind the prefix
_BLOCK_TOKENS = 64
_MOST_ON_HOST = 2 << 30  # bytes of a cache that the service compresses for this


class Way(NamedTuple):
    """How a prefix comes back: the bytes that cross the bus, and what restores it."""

    name: str
    size: int
    restore: Callable[[], Cache]


def model_of(shape: Shape, device: str) -> Any:  # noqa: ANN401
    """A model with random weights."""
    large = shape is LLAMA
    config = transformers.LlamaConfig(
        vocab_size=128256 if large else 64,
        hidden_size=4096 if large else 32,
        intermediate_size=14336 if large else 64,
        num_hidden_layers=shape.layers,
        num_attention_heads=32 if large else 2,
        num_key_value_heads=shape.heads,
        head_dim=shape.channels,
        max_position_embeddings=1 << 17,
        attn_implementation="sdpa",
    )
    with torch.device(device):
        return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()


def ways(
    shape: Shape, tokens: int, device: str, decoders: tuple[Decoder, Decoder]
) -> tuple[Cache, list[Way]]:
    """A cache, and the ways in which it comes back."""
    plain, turned = decoders
    block = _BLOCK_TOKENS if device == "cuda" else 16
    data = artefact(shape, tokens, block, plain, turned)
    cache = dict(turned.decode(data).tensors)
    host = {name: each.cpu() for name, each in cache.items()}
    if device == "cuda":
        host = {name: each.pin_memory() for name, each in host.items()}

    def copy() -> Cache:
        return {name: each.to(device, non_blocking=True) for name, each in host.items()}

    def decode(decoder: Decoder, held: torch.Tensor) -> Callable[[], Cache]:
        return lambda: decoder.decode(held).tensors

    size = sum(each.nbytes for each in host.values())
    found = [Way("uncompressed", size, copy)]
    integers = Encoder("int4", device).encode(cache).artefact
    codecs = {"int4": integers} | coded(host, size)
    for name, bytes_of in codecs.items():
        found.append(Way(name, len(bytes_of), decode(plain, pinned(bytes_of, device))))
    held = pinned(data, device)
    found.append(Way("klt:max with a profile", len(data), decode(turned, held)))
    return cache, found


def coded(host: Cache, size: int) -> dict[str, bytes]:
    """Artefacts of codecs that the device only decodes, where the service is at hand."""
    if size > _MOST_ON_HOST:
        return {}
    try:
        with kvcompress.Client(timeout=120) as client:
            return {
                codec: client.compress(host, codec=codec).artefact or b""
                for codec in ("ecsq", "klt", "lossless")
            }
    except (KVCompressError, OSError) as error:
        print(f"skipped: ecsq, klt and lossless, since the service is not at hand: {error}")
        return {}


def after(way: Way, first_token: Callable[[Cache | None], int]) -> int:
    """Restores a prefix, and computes the first token behind it."""
    return first_token(way.restore())


def measure(shape: Shape, lengths: tuple[int, ...], device: str, until: float) -> None:
    """Prints the table; lengths for which there is no time are named."""
    model = model_of(shape, device)
    straight, turning = profiles(shape)
    decoders = Decoder(straight, device), Decoder(turning, device)
    print("| prefix, tokens | from | MB over the bus | restored in ms | first token ms "
          "| of computing | of uncompressed |")  # fmt: skip
    print("|" + " --- |" * 7, flush=True)
    for tokens in lengths:
        if time.monotonic() > until:
            print(f"skipped, no time is left: {tokens:,} tokens")
            continue
        ids = torch.randint(0, model.config.vocab_size, (1, tokens + QUESTION), device=device)
        cache, found = ways(shape, tokens, device, decoders)

        def first_token(cache: Cache | None, ids: torch.Tensor = ids, tokens: int = tokens) -> int:
            held = None if cache is None else cache_from_tensors(cache)
            new = ids if cache is None else ids[:, tokens:]
            answer = model(new, past_key_values=held, use_cache=True, logits_to_keep=1)
            return int(answer.logits[0, -1].argmax())

        computed = seconds_of(partial(first_token, None), device)
        print(f"| {tokens:,} | computing | - | - | {1e3 * computed:,.1f} | 1 | |", flush=True)
        expected, uncompressed = first_token(cache), 0.0
        for way in found:
            restored = seconds_of(way.restore, device)
            whole = seconds_of(partial(after, way, first_token), device)
            uncompressed = uncompressed or whole
            if way.name in ("uncompressed", "lossless", "klt:max with a profile"):
                same = first_token(way.restore()) == expected
                assert same, f"another token after {way.name}"
            print(
                f"| {tokens:,} | {way.name} | {way.size / 1e6:,.1f} | {1e3 * restored:,.1f} | "
                f"{1e3 * whole:,.1f} | {whole / computed:.2f} | {whole / uncompressed:.2f} |",
                flush=True,
            )


def main() -> None:
    """Prints the environment and the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("device", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    print(f"{environment(options.device)}; transformers {transformers.__version__}")
    dry = options.device == "cpu"
    shape, lengths = (TINY, DRY_LENGTHS) if dry else (LLAMA, LENGTHS)
    with fast_interpreter() if dry else nullcontext(), torch.no_grad():
        measure(shape, lengths, options.device, time.monotonic() + options.seconds)


if __name__ == "__main__":
    main()
