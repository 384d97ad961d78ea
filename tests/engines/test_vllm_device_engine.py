# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""KVCompressDeviceConnector within vLLM itself, on a CPU: artefacts and blocks without a tier.

The service restores and saves where no kernel runs; once Triton's interpreter does. All engines
compute in float32, in which a prompt's tokens do not depend on how much of it was in a cache.
"""

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2000)]
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from jobs import run_job  # noqa: E402
from mla_model import make_model  # noqa: E402
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

from kvcompress import payload  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
DOCUMENT, CHUNK, CHUNKS = 1100, 256, 4
ANSWER = 360  # tokens for which two requests have no space
ARTEFACTS = "*/artefacts/*/*.safetensors"
QUESTIONS = (
    "\n\nQuestion: what is a manifest?\nAnswer:",
    "\n\nQ: Which codecs are there? A:",
)
# Damages the artefacts of tokens from one on; without a number, all.
DAMAGE = f"""
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob("{ARTEFACTS}"):
    data = bytearray(path.read_bytes())
    if len(sys.argv) == 2 or f'"first_token":"{{sys.argv[2]}}"'.encode() in data:
        data[-100] ^= 1
        path.write_bytes(data)
"""
RESET = {"reset": True}
_JOB = ("arguments", "max_model_len", "model")


def prompts(model: str = "KVCOMPRESS_ENGINE_MODEL") -> list[list[int]]:
    """A document with two questions, as numbers of tokens of the model that a variable names."""
    tokenizer = Tokenizer.from_file(f"{os.environ[model]}/tokenizer.json")
    document = tokenizer.encode((REPOSITORY / "core" / "FORMAT.md").read_text()).ids[:DOCUMENT]
    return [document + tokenizer.encode(question).ids for question in QUESTIONS]


def run(folder: Path, requests: list[Any], **extra: Any) -> dict[str, Any]:  # noqa: ANN401
    """Runs an engine; what is in _JOB is of the job."""
    job = {name: extra.pop(name) for name in _JOB if name in extra}
    options = {"folder": str(folder), "codec": "lossless", "timeout": 60, **extra}
    job["connector"] = "KVCompressDeviceConnector"
    return run_job(options, requests, dtype="float32", **job)


def run_tier(folder: Path, requests: list[Any], model: str = "") -> list[Any]:
    """Runs an engine with the tier, whose chunks have as many tokens; returns the results."""
    extra = {"folder": str(folder), "codec": "lossless", "timeout": 60, "block_size": CHUNK}
    results: list[Any] = run_job(extra, requests, model, dtype="float32")["results"]
    return results


def empty(folder: Path) -> dict[str, Any]:
    """Returns what removes all artefacts, between two requests."""
    return {"run": ["sh", "-c", 'rm -r "$1"/*/blocks "$1"/*/artefacts', "sh", str(folder)]}


def failures(done: dict[str, Any], *labels: str) -> float:
    """Returns how often something failed, with these values of labels."""
    total: float = sum(
        value
        for key, value in done["counters"].items()
        if "kvcompress_failures" in key and all(f"'{label}'" in key for label in labels)
    )
    return total


@dataclass(frozen=True)
class Stored:
    """What a first engine has stored.

    Attributes:
        folder: Where.
        computed: What it said to each question, when it computed all of the prompt.
    """

    folder: Path
    computed: list[list[int]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """An engine that computes both questions, and stores the document in artefacts of a chunk."""
    folder = tmp_path_factory.mktemp("cache")
    one, other = prompts()
    done = run(folder, [one, RESET, empty(folder), other], artefact_tokens=CHUNK)
    assert [result["served"] for result in done["results"]] == [0, 0]
    assert failures(done) == 0
    headers = [payload.read_header(path.read_bytes()) for path in folder.glob(ARTEFACTS)]
    assert sorted(int(header.metadata["first_token"]) for header in headers) == [0, 256, 512, 768]
    return Stored(folder, [result["tokens"] for result in done["results"]])


def test_a_new_engine(stored: Stored) -> None:
    """It finds the document for both questions, and what is damaged it computes, and stores."""
    one, other = prompts()
    damage = [sys.executable, "-c", DAMAGE, str(stored.folder)]
    requests = [
        *(one, RESET, other, RESET),
        *({"run": [*damage, "512"]}, one, RESET, other, RESET),
        *({"run": damage}, one, RESET, one, RESET),
    ]
    done = run(stored.folder, requests, artefact_tokens=CHUNK)
    results = done["results"]
    assert [result["served"] for result in results[:2]] == [CHUNKS * CHUNK] * 2
    expected = [stored.computed[number] for number in (0, 1, 0, 1, 0, 0)]
    assert [result["tokens"] for result in results] == expected
    served = [result["served"] for result in results]
    assert served[3] == CHUNKS * CHUNK, "what was computed again is stored again"
    assert served[4] == 0
    assert served[5] == CHUNKS * CHUNK
    assert failures(done, "load", "damaged") == 1 + CHUNKS
    assert failures(done) == 1 + CHUNKS


@pytest.mark.nightly
def test_a_full_disk(stored: Stored, tmp_path: Path) -> None:
    """The request is served, and nothing is stored."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(mount, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        done = run(tmp_path, [prompts()[0], RESET, prompts()[0]])
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
    for result in done["results"]:
        assert (result["served"], result["tokens"]) == (0, stored.computed[0])
    assert failures(done, "save", "disk") >= 1


@pytest.mark.nightly
def test_preempted_requests(tmp_path: Path) -> None:
    """Two at once in a cache that holds one and a half of them: each is told the same as alone."""
    document = prompts()[0]
    both = [document[:550], document[550:1100]]
    alone = [{"together": [each], "tokens": ANSWER} for each in both]
    requests = [{"together": both, "tokens": ANSWER}, RESET, alone[0], RESET, alone[1]]
    options = {"arguments": {"num_gpu_blocks_override": 13}, "max_model_len": 1024}
    done = run(tmp_path, requests, **options)
    tokens = [result["tokens"] for result in done["results"]]
    assert tokens[:2] == tokens[2:]
    assert [result["served"] for result in done["results"][2:]] == [2 * CHUNK] * 2
    [preemptions] = [n for key, n in done["counters"].items() if "num_preemptions" in key]
    assert preemptions > 0
    assert failures(done) == 0


def test_kernels_restore_into_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Triton's interpreter, what the service restores: the answer of a lossy codec is the same.

    vLLM lays out keys and values differently on CPUs, so that the service saves them.
    """
    prompt = prompts()[0][: CHUNK + 40]
    requests = [prompt, RESET, prompt]
    by_service = run(tmp_path, requests, codec="int8")["results"]
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    done = run(tmp_path, [prompt], codec="int8")
    [by_kernels] = done["results"]
    assert [result["served"] for result in (*by_service, by_kernels)] == [0, CHUNK, CHUNK]
    assert by_kernels["tokens"] == by_service[1]["tokens"]
    assert by_service[1]["restoring"] > 0
    assert by_kernels["restoring"] == 0, "the service was not asked"
    assert failures(done) == 0


@pytest.mark.nightly
def test_the_tier_reads_what_the_device_stored(stored: Stored) -> None:
    """With chunks of the same size, and one rank; the artefacts are the same."""
    [result] = run_tier(stored.folder, prompts()[:1])
    assert (result["served"], result["tokens"]) == (CHUNKS * CHUNK, stored.computed[0])


@pytest.mark.nightly
def test_sliding_windows_in_one_group(tmp_path: Path) -> None:
    """As vLLM keeps Gemma 3 without its manager of several groups."""
    windows = "KVCOMPRESS_ENGINE_WINDOWS"
    [prompt, _] = prompts(windows)
    options = {"arguments": {"disable_hybrid_kv_cache_manager": True}, "model": os.environ[windows]}
    once, again = run(tmp_path, [prompt, RESET, prompt], **options)["results"]
    assert (once["served"], again["served"]) == (0, CHUNKS * CHUNK)
    assert again["tokens"] == once["tokens"]


@pytest.fixture(scope="module")
def latents(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model with MLA."""
    folder = tmp_path_factory.mktemp("model")
    make_model(folder, Path(os.environ["KVCOMPRESS_ENGINE_MODEL"]))
    return str(folder)


def test_latents(latents: str, tmp_path: Path) -> None:
    """What the tier has stored, and what was stored here, gives what vLLM's own copy gives.

    The copy is in the tier's memory: vLLM 0.32 keeps no prefixes with MLA on CPUs. After any hit
    its backend for CPUs goes on otherwise than where it computes the prompt.
    """
    prompt = prompts()[0][: 2 * CHUNK + 40]
    computed, copied = run_tier(tmp_path, [prompt, {"reset": False}, prompt], latents)
    requests = [prompt, RESET, empty(tmp_path), prompt, RESET, prompt]
    done = run(tmp_path, requests, model=latents)
    of_tier, again, found = done["results"]
    served = [each["served"] for each in (copied, of_tier, again, found)]
    assert served == [2 * CHUNK, 2 * CHUNK, 0, 2 * CHUNK]
    assert again["tokens"] == computed["tokens"]
    assert of_tier["tokens"] == found["tokens"] == copied["tokens"]
    assert failures(done) == 0
    [result] = run_tier(tmp_path, [prompt], latents)
    assert (result["served"], result["tokens"]) == (2 * CHUNK, copied["tokens"])


@pytest.mark.nightly
def test_kernels_and_latents(latents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Triton's interpreter they save and restore; the service restores the same of it."""
    prompt = prompts()[0][: CHUNK + 40]
    with monkeypatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        done = run(tmp_path, [prompt, RESET, prompt], codec="int8", model=latents)
    [by_service] = run_tier(tmp_path, [prompt], latents)
    computed, by_kernels = done["results"]
    assert [each["served"] for each in (computed, by_kernels, by_service)] == [0, CHUNK, CHUNK]
    assert by_kernels["tokens"] == by_service["tokens"]
    assert by_kernels["restoring"] == 0, "the service was not asked"
    assert by_service["restoring"] > 0
    assert failures(done) == 0
