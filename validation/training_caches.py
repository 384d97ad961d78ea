# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Writes caches to train a profile from, of the texts that no study measures.

    PYTHON=$(deploy/python-env --no-deps validation/requirements.txt)/bin/python
    $PYTHON validation/training_caches.py --windows 18 --output DIR
    kv-compress -train-profile model.profile -train-contract -model-label NAME DIR/*

Windows are spread evenly over each of the three texts of measure/texts.py, as many as were asked
for or as the text has. See README.md next to this file.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from measure.injection import first_tokens, load, prefill, spread, to_tensors
from measure.texts import TRAINING


def main() -> None:
    """Writes them, one file a window."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="as in codec_study.py")
    parser.add_argument("--tokens", type=int, default=1024, help="of a cache (%(default)s)")
    parser.add_argument("--windows", type=int, default=18, help="of a text, at most (%(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    flags = parser.parse_args()
    flags.output.mkdir(parents=True, exist_ok=True)
    model, tokenizer = load(flags.model)
    first = first_tokens(tokenizer)
    for text in TRAINING:
        tokens = tokenizer(text.read(), add_special_tokens=False)["input_ids"]
        length = flags.tokens - len(first)
        windows = spread(tokens, length, min(flags.windows, len(tokens) // length))
        for number, window in enumerate(windows):
            with torch.no_grad():
                cache = to_tensors(prefill(model, torch.tensor([first + window])), torch.bfloat16)
            path = flags.output / f"{text.name}-{number:03}.safetensors"
            save_file({name: states.contiguous() for name, states in cache.items()}, path)
            print(path, flush=True)


if __name__ == "__main__":
    main()
