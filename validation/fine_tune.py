# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Tunes a model on one text, to measure what a profile of the model as it was does to its caches.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    $PYTHON validation/fine_tune.py --text headers --output DIR
    $PYTHON validation/profile_study.py --model DIR --profile model.profile --output RESULTS

All weights are tuned with AdamW on windows that are spread evenly over the first half of the text,
in a random order, and again where there are fewer than steps. The texts are those of
measure/texts.py. See README.md next to this file.
"""

import argparse
import itertools
import sys
from pathlib import Path

import torch

from measure.injection import first_tokens, load, spread
from measure.texts import TEXTS, TRAINING, UNUSUAL

_NORM = 1.0  # to which gradients are clipped


def main() -> None:
    """Tunes the model, and writes it with its tokenizer."""
    texts = {text.name: text for text in (*TEXTS, *UNUSUAL, *TRAINING)}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="as in codec_study.py")
    parser.add_argument("--text", required=True, choices=texts, help="to tune on")
    parser.add_argument("--steps", type=int, default=100, help="each of a window (%(default)s)")
    parser.add_argument("--tokens", type=int, default=512, help="of a window (%(default)s)")
    parser.add_argument("--rate", type=float, default=2e-5, help="of learning (%(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="folder for the model")
    flags = parser.parse_args()
    model, tokenizer = load(flags.model)
    first = first_tokens(tokenizer)
    tokens = tokenizer(texts[flags.text].read(), add_special_tokens=False)["input_ids"]
    length = flags.tokens - len(first)
    half = tokens[: len(tokens) // 2]
    windows = spread(half, length, min(flags.steps, len(half) // length))
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(0)).tolist()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=flags.rate, weight_decay=0.0)
    for step, place in enumerate(itertools.islice(itertools.cycle(order), flags.steps)):
        ids = torch.tensor([first + windows[place]])
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _NORM)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1} of {flags.steps}: loss {loss.item():.3f}", file=sys.stderr)
    # The weights of a GGUF file are floats by now, and transformers refuses to write others.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(flags.output)
    tokenizer.save_pretrained(flags.output)


if __name__ == "__main__":
    main()
