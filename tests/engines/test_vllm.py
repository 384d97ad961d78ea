# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.vllm within vLLM itself, on a CPU.

Three engines run one after the other, each in a process of its own. The first saves a document
that two other questions follow; the second, new, has to find it for each question, and goes on
when artefacts are damaged and when the server is killed; the third compresses it well.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

from kvcompress import payload  # noqa: E402
from kvcompress._child import server_binary  # noqa: E402

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
TOKENS = 8  # that are generated
DOCUMENT = 1100  # tokens; eight blocks of 128 and some
ARTEFACTS = "*/artefacts/*/*.safetensors"
DAMAGE = f"""
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob("{ARTEFACTS}"):
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
"""


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """A document with three questions, as numbers of tokens."""
    tokenizer = Tokenizer.from_file(f"{os.environ['KVCOMPRESS_ENGINE_MODEL']}/tokenizer.json")
    document = tokenizer.encode((REPOSITORY / "core" / "FORMAT.md").read_text()).ids[:DOCUMENT]
    questions = (
        "\n\nQuestion: what is a manifest?\nAnswer:",
        "\n\nQ: Which codecs are there? A:",
        "\n\nSummary in one sentence:",
    )
    return [document + tokenizer.encode(question).ids for question in questions]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """The process and the address of a server that a test may kill."""
    socket = tmp_path_factory.mktemp("server") / "socket"
    address = f"unix:{socket}"
    command = [str(server_binary()), "--metrics-listen", "127.0.0.1:0", "--listen", address]
    with subprocess.Popen(command) as process:
        while not socket.exists():
            assert process.poll() is None
            time.sleep(0.05)
        yield process.pid, address
        process.kill()


def run_engine(extra: dict[str, Any], requests: list[Any]) -> tuple[list[Any], dict[str, float]]:
    """Runs an engine in a process of its own; gives the results and the tier's counters."""
    job = {
        "model": os.environ["KVCOMPRESS_ENGINE_MODEL"],
        "extra": {"cpu_bytes_to_use": 1 << 28, **extra},
        "tokens": TOKENS,
        "max_model_len": 2048,
        "requests": requests,
    }
    # Threads that wait for each other on processors that others use as well hardly get on.
    alone = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    environment = {**alone, **os.environ, **own}
    done = subprocess.run(
        [sys.executable, HERE / "vllm_engine.py"],
        input=json.dumps(job).encode(),
        capture_output=True,
        env=environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    print(done.stdout.decode())
    result = json.loads(done.stdout)
    return result["results"], result["counters"]


def counter(counters: dict[str, float], name: str, *labels: str) -> float:
    """Gives the sum of a counter over all series that have these values of labels."""
    return sum(
        value
        for key, value in counters.items()
        if name in key and all(f"'{label}'" in key for label in labels)
    )


@pytest.mark.timeout(2000)
def test_other_questions_hit_and_failures_are_misses(
    prompts: list[list[int]], server: tuple[int, str], tmp_path: Path
) -> None:
    """With `lossless` every token is the one of an engine that computes, whatever happens."""
    extra = {"folder": str(tmp_path), "codec": "lossless", "server": server[1]}
    expected, _ = run_engine(extra, prompts)
    reset = {"reset": True}
    damage = {"run": [sys.executable, "-c", DAMAGE, str(tmp_path)]}
    requests: list[Any] = []
    for prompt in prompts:
        requests += [prompt, reset]
    requests += [damage, prompts[0], reset, {"kill": server[0]}, prompts[1]]
    results, counters = run_engine(extra, requests)

    tokens = [each["tokens"] for each in expected]
    computed, killed = expected[0]["seconds"], results[-1]["seconds"]
    print(f"first token after {computed:.2f} s, with a killed server after {killed:.2f} s")
    assert [each["tokens"] for each in results] == [*tokens, tokens[0], tokens[1]]
    served = [each["served"] for each in results]
    assert min(served[:3]) >= 0.9 * DOCUMENT, served
    assert served[3:] == [0, 0]
    assert counter(counters, "kvcompress_failures", "load", "damaged") >= 1
    assert counter(counters, "kvcompress_failures", "load", "unavailable") >= 1


@pytest.mark.timeout(1000)
def test_ratio(prompts: list[list[int]], tmp_path: Path) -> None:
    """What is stored is at most a quarter, and found again without the engine's own caches."""
    extra = {"folder": str(tmp_path), "codec": "klt"}
    results, counters = run_engine(extra, [prompts[0], {"reset": True}, prompts[1]])
    assert results[1]["served"] >= 0.9 * DOCUMENT
    raw, artefacts = (
        counter(counters, f"kvcompress_{kind}_bytes", "load") for kind in ("raw", "artefact")
    )
    assert raw / artefacts >= 4, (raw, artefacts)
    # Each has tokens that follow one another, though vLLM tells of its chunks in no order.
    headers = [payload.read_header(path.read_bytes()) for path in tmp_path.glob(ARTEFACTS)]
    assert sorted(int(header.metadata["first_token"]) for header in headers) == [0, 512]
