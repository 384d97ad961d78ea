#!/usr/bin/env python3
# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Compares caches of transformers on one text: bytes kept, seconds, and harm to predictions.

    compare_caches.py --model FOLDER [--gguf FILE] --text FILE [--prefix N] [--steps N]
        [--codecs NAME...] [--group-layers N]

A prefix is read at once, then tokens one by one, each the text's own, with a plain
DynamicCache, transformers' QuantizedCache where its back end is installed, and CompressedCache
with several codecs, and with one of them where half or all of what was decompressed stays. KL is
that of the predictions from those with DynamicCache, in nats, mean and standard error over the
steps. Bytes are those of the tensors and artefacts that a cache keeps at the end; `smaller`
is against 16 bits a value. Needs torch and transformers, and
kv-compressd as `kvcompress.Client()` does.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers import (  # type: ignore[import-not-found,unused-ignore]
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    QuantizedCache,
)

import kvcompress
from kvcompress.integrations.transformers import CompressedCache

CODECS = ("int8", "int4", "int4-hadamard", "int4-kivi", "ecsq")
STAYING = "int4-hadamard"
STAYS = (("half", 0.5), ("all", 1.0))


def kept_bytes(cache: Any) -> int:  # noqa: ANN401
    """Returns the bytes of all tensors that a cache of transformers keeps."""
    if isinstance(cache, CompressedCache):
        return cache.stored_bytes
    total = 0
    for layer in cache.layers:
        for value in vars(layer).values():
            if isinstance(value, torch.Tensor):
                inner = [value]
                if type(value) is not torch.Tensor:  # quanto's: a tensor made of tensors
                    names, _ = value.__tensor_flatten__()
                    inner = [getattr(value, name) for name in names]
                    inner = [getattr(each, "_data", each) for each in inner]
                total += sum(each.nbytes for each in inner)
    return total


def caches(
    client: kvcompress.Client,
    config: Any,  # noqa: ANN401
    plain: list[int],
    codecs: Sequence[str],
    group_layers: int,
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the caches to compare, the plain one first; after it `plain` has its bytes."""
    yield "DynamicCache", partial(DynamicCache, config=config)
    for bits in (4, 2):
        make = partial(QuantizedCache, "quanto", config, nbits=bits)
        yield f"QuantizedCache quanto {bits} bits", make
    compressed = partial(CompressedCache, client, config, group_layers=group_layers)
    for codec in codecs:
        yield f"CompressedCache {codec}", partial(compressed, codec=codec)
    for name, share in STAYS:
        stays = int(share * plain[0])
        make = partial(compressed, codec=STAYING, decoded_bytes=stays)
        yield f"CompressedCache {STAYING}, {name} stays", make


@torch.no_grad()  # type: ignore[misc,untyped-decorator,unused-ignore]
def read(model: Any, ids: torch.Tensor, prefix: int, cache: Any) -> tuple[torch.Tensor, float]:  # noqa: ANN401
    """Reads a text; returns the log-probabilities after each token, and seconds for a token."""
    model(ids[:, :prefix], past_key_values=cache)
    rows = []
    begun = time.perf_counter()
    for place in range(prefix, ids.shape[1]):
        logits = model(ids[:, place : place + 1], past_key_values=cache).logits
        rows.append(logits[0, -1].float().log_softmax(-1))
    return torch.stack(rows), (time.perf_counter() - begun) / len(rows)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--model", required=True, help="a folder or a hub name")
    parser.add_argument("--gguf", help="a GGUF file in it")
    parser.add_argument("--dtype", default="float32", help="of the model (%(default)s)")
    parser.add_argument("--text", type=Path, required=True, help="a file of text")
    parser.add_argument("--prefix", type=int, default=1024, help="tokens read at once")
    parser.add_argument("--steps", type=int, default=64, help="tokens read one by one")
    parser.add_argument("--codecs", nargs="+", default=CODECS, help="of CompressedCache")
    parser.add_argument(
        "--group-layers", type=int, default=6, help="layers in a call (%(default)s)"
    )
    flags = parser.parse_args()
    place = {"gguf_file": flags.gguf} if flags.gguf else {}
    tokenizer = AutoTokenizer.from_pretrained(flags.model, **place)
    model = AutoModelForCausalLM.from_pretrained(flags.model, dtype=flags.dtype, **place).eval()
    ids = tokenizer(flags.text.read_text(), return_tensors="pt").input_ids
    ids = ids[:, : flags.prefix + flags.steps]
    print(
        f"{flags.model}, {flags.text.name}, {flags.prefix} + {ids.shape[1] - flags.prefix} tokens"
    )
    print(
        f"{'cache':42} {'MB':>8} {'smaller':>8} {'ms/token':>9} {'KL':>10} {'+-':>9} {'top-1':>6}"
    )
    exact, plain = None, list[int]()
    with kvcompress.Client() as client:
        for name, make in caches(client, model.config, plain, flags.codecs, flags.group_layers):
            try:
                cache = make()
            except ImportError as error:
                print(f"{name:42} {str(error).splitlines()[0]}")
                continue
            rows, seconds = read(model, ids, flags.prefix, cache)
            size = kept_bytes(cache)
            if exact is None:
                exact, itemsize = rows, cache.layers[0].keys.itemsize
                plain.append(size)
            smaller = plain[0] * 2 / itemsize / size
            kl = (exact.exp() * (exact - rows)).sum(-1)
            deviation = float(kl.std()) / len(kl) ** 0.5
            same = float((exact.argmax(-1) == rows.argmax(-1)).float().mean())
            print(
                f"{name:42} {size / 1e6:8.2f} {smaller:8.2f} {1e3 * seconds:9.1f} "
                f"{float(kl.mean()):10.6f} {deviation:9.6f} {same:6.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
