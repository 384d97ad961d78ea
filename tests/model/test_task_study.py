# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The study of tasks: its cases, how they are asked and scored, intervals, and its page."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from tiny_llama import NEW, prompt  # noqa: E402
from transformers import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    Gemma3ForCausalLM,
    Gemma3TextConfig,
)

import task_study  # noqa: E402
from measure import tasks  # noqa: E402
from measure.asking import Asker, agreed  # noqa: E402
from measure.injection import load, prefill, to_tensors  # noqa: E402
from measure.profile_bench import flags_of  # noqa: E402

PREFIX = 4096  # letters
TINY = Path(__file__).parents[1] / "golden" / "profile" / "tiny.profile"


class Letters:
    """A tokenizer of 97 tokens: printable ASCII, the line end, and one for everything else."""

    def __call__(self, text: Any, add_special_tokens: bool = True) -> dict[str, Any]:
        """Returns ids of a text, or of several."""
        if isinstance(text, str):
            return {"input_ids": [self._id(letter) for letter in text]}
        return {"input_ids": [self(each)["input_ids"] for each in text]}

    @staticmethod
    def _id(letter: str) -> int:
        if letter == "\n":
            return 95
        return ord(letter) - 32 if " " <= letter <= "~" else 96

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids."""
        return "".join("\n" if i == 95 else "?" if i == 96 else chr(i + 32) for i in ids)

    def batch_decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each."""
        return [self.decode(row) for row in rows]


@pytest.fixture(scope="module")
def contexts() -> list[tasks.Context]:
    """One turn of all kinds."""
    return list(tasks.Maker(Letters(), PREFIX, 1).contexts(4))


@pytest.fixture
def questions() -> list[list[int]]:
    """Of different lengths."""
    return [prompt(rows=i + 2, tokens=length)[0].tolist() for i, length in enumerate((3, 9, 1, 6))]


def test_contexts_follow_from_the_seed(contexts: list[tasks.Context]) -> None:
    assert list(tasks.Maker(Letters(), PREFIX, 1).contexts(4)) == contexts
    assert list(tasks.Maker(Letters(), PREFIX, 2).contexts(4)) != contexts
    assert [context.kind for context in contexts] == list(tasks.ORDER)
    assert {len(context.tokens) for context in contexts} == {PREFIX}
    assert {case.task for context in contexts for case in context.cases} == set(tasks.TASKS)


def test_answers_are_in_the_context(contexts: list[tasks.Context]) -> None:
    for context in contexts:
        text = Letters().decode(context.tokens)
        for case in context.cases:
            question, answer = (Letters().decode(ids) for ids in (case.question, case.answer))
            if case.task in {"passkey", "multi-key"}:
                assert text.count(f"{question.strip()}{answer}.") == 1
            elif case.task == "copying":
                assert question[2:] + answer in text[: PREFIX * 3 // 4]
                assert (len(question), len(answer)) == (2 + tasks.LEAD, tasks.COPIED)
            elif case.task == "table":
                name = question.rsplit("| ", 1)[1]
                [row] = [line for line in text.splitlines() if line.startswith(f"| {name}")]
                assert f"{answer} |" in row
                assert answer not in question
            elif case.function is not None:
                assert text.count(case.function.source) == 1
                assert question.strip() == case.function.head


def test_a_context_that_is_too_short_or_too_long() -> None:
    with pytest.raises(ValueError, match="too short for its inserts"):
        list(tasks.Maker(Letters(), 600, 1).contexts(2))
    with pytest.raises(ValueError, match="and a context 5000000"):
        list(tasks.Maker(Letters(), 5_000_000, 1).contexts(1))


def sliding_model() -> Any:
    """A Gemma 3 with random weights, and layers that see 16 tokens."""
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        initializer_range=0.3,
    )
    return Gemma3ForCausalLM(config).eval()


def greedy(model: Any, ids: list[int]) -> list[int]:
    """Continues ids, which the model reads anew for each token."""
    start = len(ids)
    with torch.inference_mode():
        for _ in range(NEW):
            ids = [*ids, int(model(torch.tensor([ids])).logits[0, -1].argmax())]
    return ids[start:]


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_packed_questions_are_answered_as_each_alone(
    model: Any, questions: list[list[int]], kind: str
) -> None:
    """As without any cache; and teacher forcing says the same."""
    model = model if kind == "llama" else sliding_model()
    prefix = prompt()
    asker = Asker(model, to_tensors(prefill(model, prefix)))
    said = asker.generate(questions, NEW)
    for question, answer in zip(questions, said, strict=True):
        assert answer == greedy(model, [*prefix[0].tolist(), *question])
    assert asker.follow(questions, said) == said
    wrong = [[*answer[:7], (answer[7] + 1) % 97, *answer[8:]] for answer in said]
    followed = asker.follow(questions, wrong)
    assert [found[:8] for found in followed] == [answer[:8] for answer in said]


def test_drafts_change_nothing(model: Any, questions: list[list[int]]) -> None:
    """Whether they are right, wrong from some token on, or end too early."""
    asker = Asker(model, to_tensors(prefill(model, prompt())))
    plain = asker.generate(questions, NEW)
    stops = frozenset({plain[0][4], plain[1][0]})
    said = asker.generate(questions, NEW, stops)
    for answer, whole in zip(said, plain, strict=True):
        assert answer == whole[: len(answer)]
        assert not stops.intersection(answer[:-1])
        assert len(answer) == NEW or answer[-1] in stops
    drafts = [said[0], [(said[1][0] + 1) % 97] * NEW, [*said[2][:3], 5, 5, 5], said[3]]
    assert asker.generate(questions, NEW, stops, drafts) == said
    assert asker.generate([], NEW, stops, []) == []


def test_tokens_in_common() -> None:
    assert agreed([1, 2, 3], [1, 2, 4]) == 2
    assert agreed([1, 2], [1, 2, 4]) == 2
    assert agreed([], [1]) == 0


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        (" x * 12 + 34\n\nanything at all", True),
        (" 34 + 12 * x", True),
        (" x * 12 + 35", False),
        (" x *", False),
        (" x / 0", False),
        (" 9 ** 9 ** 9 ** 9", False),
        (" [0] * 10 ** 9", False),
        (" __import__('os').getpid()", False),
        (" open('/dev/null')", False),
        (" x * 12 + 34 # \0", False),
    ],
)
def test_completions_are_executed(completion: str, right: bool) -> None:
    head = "def scale_price(x):\n    return"
    function = tasks.Function("scale_price", f"{head} x * 12 + 34", head)
    assert tasks.works(function, completion) is right


def test_an_endless_loop_is_wrong() -> None:
    head = "def wait(x):\n    while True:\n        pass\n    return"
    assert not tasks.works(tasks.Function("wait", "def wait(x):\n    return 1", head), " 1")


def test_intervals_are_over_contexts() -> None:
    counts = [(3.0, 4), (1.0, 4), (4.0, 4), (0.0, 0)]
    share, low, high = task_study.interval(counts, 1)
    assert share == pytest.approx(8 / 12)
    assert 0.25 <= low < share < high <= 1
    assert task_study.interval(counts, 1) == (share, low, high)
    assert task_study.interval([(1.0, 2), (1.0, 2)], 1) == (0.5, 0.5, 0.5)
    [share, *ends] = task_study.interval([(1.0, 4), (0.0, 0)], 1)
    assert share == 0.25
    assert all(math.isnan(end) for end in (*ends, *task_study.interval([(0.0, 0)], 1)))


def test_what_stays_right() -> None:
    """A case that only becomes right counts for accuracy alone."""
    metric = task_study.Metric("table", "table")

    def cases(*right: float) -> dict[str, Any]:
        return {"bytes": 1, "cases": [{"task": "table", "right": each} for each in right]}

    context = {"codecs": {task_study.OWN: cases(1, 1, 0), "int4": cases(1, 0, 1)}}
    assert task_study.accuracy(context, "int4", metric) == (2, 3)
    assert task_study.retention(context, "int4", metric) == (1, 2)


def test_presets_of_a_profile_are_rows() -> None:
    rows = flags_of(["int4", "klt:high"], TINY)
    assert list(rows)[:2] == ["int4", "klt:high"]
    assert rows["klt:ultra, profile"] == ["-profile", TINY, "-codec", "klt:ultra"]


def test_the_study_of_a_tiny_model(
    model: Any,
    bin_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All rows are there, the uncompressed cache agrees with itself, and a run repeats."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
    monkeypatch.setattr(task_study, "load", lambda _: (model, Letters()))
    found = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        flags = f"--contexts 4 --prefix {PREFIX} --threads 1 --codec int8 --codec klt:ultra"
        task_study.main([*flags.split(), "--output", str(folder)])
        document = json.loads((folder / "task_study.json").read_text())
        found.append([context["codecs"] for context in document["contexts"]])
    assert found[0] == found[1]
    page = (tmp_path / "first" / "task_study.md").read_text()
    for row in ("| uncompressed | 1.00x | ", "| `int8` | ", "| `klt:ultra` | "):
        assert page.count(f"\n{row}") == 2
    assert "100.0% (100.0 to 100.0) |\n| `int8`" in page
    assert "**agreement** (12 cases, 3 contexts)" in page
    command = f"task_study.py --contexts 4 --prefix {PREFIX} --codec int8 --codec klt:ultra`"
    assert command in page
    assert str(tmp_path) not in page


def test_a_broken_cache_is_noticed() -> None:
    """SmolLM2 copies with its own cache, and not with one of zeros."""
    model, tokenizer = load("smollm2")
    context = next(tasks.Maker(tokenizer, 1024, 1).contexts(1))
    cases = [case for case in context.cases if case.task == "copying"]
    own = to_tensors(prefill(model, torch.tensor([context.tokens])), torch.bfloat16)
    examiner = task_study.Examiner(model, tokenizer)

    def share(cache: Any) -> float:
        shares: list[float] = [score["share"] for score in examiner.scores(cache, cases)]
        return sum(shares) / len(shares)

    assert share(own) > 0.7
    assert share({name: torch.zeros_like(tensor) for name, tensor in own.items()}) < 0.5
