# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""kvcompress.integrations.vllm within vLLM itself, on a CPU.

Engines run one after the other, each in a process of its own. The first saves a document that
two other questions follow; the second, new, has to find it for each question, and goes on when
artefacts and the disk are broken on purpose, the third when the server is; the last one compresses
it well.
"""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("vllm") is None:  # to import it takes long
    pytest.skip("vLLM is not installed", allow_module_level=True)

from documents import claimed_line, run_line, substituted  # noqa: E402
from jobs import run_engine  # noqa: E402
from processes import GENERATED, Daemon  # noqa: E402
from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

from kvcompress import load_arrays, payload  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = 1100  # tokens; eight blocks of 128 and some
ARTEFACTS = "*/artefacts/*/*.safetensors"
DAMAGE = f"""
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob("{ARTEFACTS}"):
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
"""
OTHER_MODEL = f"""
import contextlib, pathlib, sys, kvcompress
with kvcompress.Client(sys.argv[2]) as client:
    for path in pathlib.Path(sys.argv[1]).glob("{ARTEFACTS}"):
        with contextlib.suppress(kvcompress.DataLossError):  # what was damaged before
            found = client.decompress(path)
            labels = {{**found.report.labels, "model": "org/other"}}
            tensors, metadata = found.torch_tensors(), found.metadata
            client.compress(
                tensors,
                path,
                overwrite=True,
                codec="lossless",
                labels=labels,
                metadata=metadata,
            )
"""
AGREED = 8  # tokens to the first question that are the same after a hit and without
Step = tuple[str, Any]  # the name of a prompt or nothing, and a request of vllm_engine.py
Broken = tuple[dict[str, Any], dict[str, float]]
TRIES = 3
NEXT_CALL = 2.5  # seconds; after two failures the pause is 2


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


def counter(counters: dict[str, float], name: str, *labels: str) -> float:
    """Returns the sum of a counter over all series that have these values of labels."""
    return sum(
        value
        for key, value in counters.items()
        if name in key and all(f"'{label}'" in key for label in labels)
    )


def answered(extra: dict[str, Any], steps: list[Step]) -> tuple[dict[str, Any], dict[str, float]]:
    """Returns what an engine answers by the names of its prompts, and the counters."""
    requests: list[Any] = []
    for _, request in steps:
        requests += [request] if isinstance(request, dict) else [request, {"reset": True}]
    results, counters = run_engine(extra, json.loads(json.dumps(requests, default=str)))
    return dict(zip((name for name, _ in steps if name), results, strict=True)), counters


@pytest.fixture(scope="module")
def extra(server: Daemon, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The configuration of engines that share a folder, with time for every artefact."""
    folder = tmp_path_factory.mktemp("tier")
    return {"folder": str(folder), "codec": "lossless", "server": server.target, "timeout": 60}


@dataclass(frozen=True)
class Expected:
    """What an engine says to each prompt, without anything that was compressed.

    In bfloat16 these need not be the same: a prompt is computed in one piece, and after a hit its
    end alone. That does not depend on where the hit comes from.

    Attributes:
        computed: When it computes all of the prompt.
        resumed: When the document is in its own memory.
    """

    computed: list[list[int]]
    resumed: list[list[int]]

    def of(self, prompt: int, served: int) -> list[int]:
        """Returns what it says where so many tokens come from a cache."""
        return self.resumed[prompt] if served else self.computed[prompt]


@pytest.fixture(scope="module")
def expected(prompts: list[list[int]], extra: dict[str, Any]) -> Expected:
    """What the first engine says, which computes and saves."""
    nothing = [{"reset": True}, nothing_stored(extra["folder"])]
    requests: list[Any] = [prompts[0], *nothing, prompts[1], *nothing, prompts[2], *prompts]
    results, _ = run_engine(extra, requests)
    computed, resumed = results[: len(prompts)], results[len(prompts) :]
    assert all(each["served"] == 0 for each in computed)
    assert all(each["served"] >= 0.9 * DOCUMENT for each in resumed)
    assert all(len(each["tokens"]) == GENERATED for each in results)
    return Expected(*([each["tokens"] for each in some] for some in (computed, resumed)))


def nothing_stored(folder: str) -> dict[str, Any]:
    """Returns a request that makes a tier forget its blocks."""
    return {"run": ["sh", "-c", 'rm -r "$1"/*/blocks', "sh", folder]}


@pytest.fixture(scope="module")
def broken(
    prompts: list[list[int]],
    expected: Expected,
    extra: dict[str, Any],
    server: Daemon,
) -> tuple[dict[str, Any], dict[str, float]]:
    """What a second one says while artefacts and the disk are broken on purpose."""
    folder, python = extra["folder"], [sys.executable, "-c"]
    disk = [
        ("", {"run": ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]}),
        ("full disk", prompts[1]),
        ("", {"run": ["umount", "--lazy", folder]}),
    ]
    steps = [
        *((f"question {number}", prompt) for number, prompt in enumerate(prompts)),
        ("", {"run": [*python, DAMAGE, folder]}),
        ("damaged", prompts[0]),
        ("", {"run": [*python, OTHER_MODEL, folder, server.target]}),
        ("other model", prompts[0]),
        *(disk if may_mount() else []),
        ("again", prompts[2]),
    ]
    return answered(extra, steps)


def breaking(prompt: list[int], process: int, folder: str) -> list[Step]:
    """A prompt that is computed, then loaded from a server that is frozen, thawed, killed."""
    wait: Step = ("", {"run": ["sleep", str(NEXT_CALL)]})
    nothing: Step = ("", nothing_stored(folder))
    freeze, thaw = ("", {"freeze": process}), ("", {"thaw": process})
    steps: list[Step] = [("warm", prompt)]
    for number in range(TRIES):
        steps += [nothing, (f"computed {number}", prompt)]
        steps += [freeze, (f"frozen {number}", prompt)]
        steps += [thaw, wait, (f"thawed {number}", prompt)]
    steps += [("", {"kill_in_load": process}), ("killed 0", prompt)]
    return [*steps, wait, ("killed 1", prompt), wait, wait, ("killed 2", prompt)]


def may_mount() -> bool:
    """Whether a small disk can be had, instead of one that is full."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.timeout(1000)
def test_caches_of_the_guide(expected: Expected, extra: dict[str, Any], tmp_path: Path) -> None:
    """What the tier keeps without loss becomes files of keys and values, by layer."""
    assert expected.computed
    (tmp_path / "bin").symlink_to(Path(os.environ["KVCOMPRESS_BIN_DIR"]).resolve())
    run_line(
        substituted(claimed_line("vLLM artefacts"), **{"/cache/": f"{extra['folder']}/"}), tmp_path
    )
    found = [load_arrays(path.read_bytes()) for path in (tmp_path / "caches").iterdir()]
    assert {int(metadata["first_token"]) for _, metadata in found} >= {0, 512}
    for tensors, _ in found:
        assert set(tensors) == {f"layer_{i}_{part}" for i in range(30) for part in ("key", "value")}
        assert {array.shape[:2] + array.shape[3:] for array in tensors.values()} == {(1, 3, 64)}


@pytest.mark.timeout(2000)
def test_other_questions_hit(expected: Expected, broken: Broken) -> None:
    """With `lossless` every token is the one of an engine that has the document in memory."""
    for number, tokens in enumerate(expected.resumed):
        found = broken[0][f"question {number}"]
        assert found["served"] >= 0.9 * DOCUMENT, found
        assert found["tokens"] == tokens
    first = broken[0]["question 0"]["tokens"]
    assert first[:AGREED] == expected.computed[0][:AGREED]


def test_what_is_broken_is_computed(expected: Expected, broken: Broken) -> None:
    """Nothing of it is served, and no token is another; after that, there is a hit again."""
    results, counters = broken
    for name in ("damaged", "other model"):
        assert results[name]["served"] == 0
        assert results[name]["tokens"] == expected.computed[0]
    assert results["again"]["served"] >= 0.9 * DOCUMENT
    assert results["again"]["tokens"] == expected.resumed[2]
    assert counter(counters, "kvcompress_failures", "load", "damaged") >= 2


def test_full_disk(expected: Expected, broken: Broken) -> None:
    """The request is served, and nothing is stored."""
    results, counters = broken
    if "full disk" not in results:
        pytest.skip("no file system can be mounted here")
    assert results["full disk"]["served"] == 0
    assert results["full disk"]["tokens"] == expected.computed[1]
    assert counter(counters, "kvcompress_failures", "save", "disk") >= 1


@pytest.mark.timeout(2000)
def test_server_that_is_away_costs_a_second(
    prompts: list[list[int]],
    expected: Expected,
    broken: Broken,
    extra: dict[str, Any],
    server: Daemon,
) -> None:
    """At most, in addition to what the same prompt takes to compute; then there is a hit again.

    Others use the processors as well: what a prompt takes to compute is measured several times.
    """
    steps = breaking(prompts[0], server.process.pid, extra["folder"])
    own = {key: extra[key] for key in ("folder", "codec", "server")}
    results, counters = answered({**own, "timeout": 0.75}, steps)
    served = broken[0]["question 0"]["served"]
    for name, result in results.items():
        print(f"{name}: {result['seconds']:.2f} s, of which restoring {result['restoring']:.2f} s")
        assert result["served"] in {0, served}, name
        assert result["tokens"] == expected.of(0, result["served"]), name
        assert name.startswith(("warm", "thawed")) or result["served"] == 0, name
    assert max(results[f"thawed {number}"]["served"] for number in range(TRIES)) >= 0.9 * DOCUMENT
    assert counter(counters, "kvcompress_failures", "load", "unavailable") >= TRIES + 3
    computed = max(results[f"computed {number}"]["seconds"] for number in range(TRIES))
    for kind in ("frozen", "killed"):
        tried = [results[f"{kind} {number}"] for number in range(TRIES)]
        assert min(each["restoring"] for each in tried) <= 1, kind
        assert min(each["seconds"] for each in tried) <= computed + 1, kind


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
    # Each has tokens that follow one another, though vLLM reports its chunks in no order.
    headers = [payload.read_header(path.read_bytes()) for path in tmp_path.glob(ARTEFACTS)]
    assert sorted(int(header.metadata["first_token"]) for header in headers) == [0, 512]
