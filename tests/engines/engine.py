# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""vLLM as a process that answers lines of JSON, so that a test can break things between prompts.

    python engine.py '{"model": FOLDER, ...}'      arguments of vllm.LLM

A line `{"prompt": TEXT, "tokens": N}` is answered with the tokens that were generated, greedily,
and how many tokens of the prompt were computed and how many came from a cache. Everything else
that vLLM prints goes to standard error.
"""

import json
import os
import sys
import time
from typing import Any


def repair_scan() -> None:
    """Lets vLLM 0.32 start where LMCache has imported numba.

    It looks at `__dict__` of whatever modules hold. llvmlite's library answers every name, with
    a function. An engine in a process of its own is started before LMCache is imported.
    """
    from llvmlite.binding import ffi  # type: ignore[import-not-found,unused-ignore]

    wrapper = type(ffi.lib)
    answer = wrapper.__getattr__

    def answer_names(library: Any, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        return answer(library, name)

    wrapper.__getattr__ = answer_names


def keep_plain_layout() -> None:
    """Makes vLLM lay out keys as GPUs have them, and processors without AMX.

    With AMX it keeps them in tiles of its own, which are stored as they are, at 1.25x: see
    docs/guides/vllm.md. What is tested is to be the same on every machine.
    """
    import torch

    torch.cpu._is_amx_tile_supported = lambda: False


def main() -> None:
    """Answers until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    repair_scan()
    keep_plain_layout()
    import vllm  # type: ignore[import-not-found,unused-ignore]

    # What tests ask for twice is to come from the connector, not from the engine itself.
    engine = vllm.LLM(
        **json.loads(sys.argv[1]),
        dtype="bfloat16",
        enforce_eager=True,
        enable_prefix_caching=False,
        seed=0,
    )
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        sampling = vllm.SamplingParams(temperature=0, max_tokens=request["tokens"], ignore_eos=True)
        began = time.monotonic()
        [output] = engine.generate(request["prompt"], sampling, use_tqdm=False)
        answer = {
            "tokens": list(output.outputs[0].token_ids),
            "prompt_tokens": len(output.prompt_token_ids),
            "cached_tokens": output.num_cached_tokens,
            "seconds": time.monotonic() - began,
        }
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
