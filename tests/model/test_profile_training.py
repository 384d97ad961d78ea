# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Profiles that are trained from a model, on one with two layers and random weights."""

import math
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kvcompress.profiles import ProfileInfo, for_model, format_report, read_profile
from kvcompress.profiles.__main__ import main

torch = pytest.importorskip("torch", reason="torch is not installed")

VOCABULARY = 97
TOKENS, FED = 120, 24


def tokenizer(text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
    """A token for each character."""
    del add_special_tokens
    return {"input_ids": [ord(character) % VOCABULARY for character in text]}


def text(seed: int) -> str:
    """Words in no order."""
    rng = random.Random(seed)
    return " ".join(rng.choice(("cache", "key", "value", "layer", "head")) for _ in range(400))


@pytest.fixture(scope="module")
def language_model(model: Any) -> Any:
    """The tiny model and its tokenizer."""
    from kvcompress.profiles._model import LanguageModel

    return LanguageModel(model, tokenizer)


@pytest.fixture(autouse=True)
def program(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client finds the native program of this tree."""
    monkeypatch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))


TEXTS = {"one": text(1), "two": text(2)}
SAID: list[str] = []  # of the last training
# A model with random weights loses much on text that it wrote, whatever the step.
LOOSE = {"high": 2.5, "max": 4.0, "ultra": 6.0}


def train(
    model: Any,
    folder: Path,
    name: str,
    texts: Mapping[str, str] = TEXTS,
    *,
    samples: int = 1,
    own: int = 5,
    shares: Mapping[str, float] = LOOSE,
) -> ProfileInfo:
    """Trains on texts, and what the model writes, and writes a report."""
    from kvcompress.profiles import _training, _training_report
    from kvcompress.profiles._training import Trainer, TrainingOptions

    options = TrainingOptions(
        label="tiny",
        windows=4 if texts else 0,
        own=own,
        tokens=TOKENS,
        fed=FED,
        samples=samples,
        held_out=2,
        layers=0,
        components=96,
    )
    SAID.clear()
    trainer = Trainer(model, options, SAID.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_training, "SHARES", shares)
        info = trainer.train(texts, folder / name)
    _training_report.write(info, trainer, folder / name)
    return info


@pytest.fixture(scope="module")
def trained(language_model: Any, bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVCOMPRESS_BIN_DIR", str(bin_dir))
        train(language_model, folder, "tiny.profile")
    return folder


def test_training_twice_gives_the_same_file(
    language_model: Any, trained: Path, tmp_path: Path
) -> None:
    train(language_model, tmp_path, "again.profile")
    assert (tmp_path / "again.profile").read_bytes() == (trained / "tiny.profile").read_bytes()


def test_a_preset_that_no_step_keeps_is_left_out(language_model: Any, tmp_path: Path) -> None:
    """The others are there; where there is none the training fails, and says what helps."""
    info = train(language_model, tmp_path, "some.profile", shares={"high": 1e-9, "ultra": 1e9})
    assert [preset.name for preset in info.presets] == ["ultra"]
    assert any(line.startswith("high is left out: no step keeps") for line in SAID)
    with pytest.raises(ValueError, match=r"no preset can be kept: .* more components"):
        train(language_model, tmp_path, "none.profile", shares={"high": 1e-9})
    assert not (tmp_path / "none.profile").exists()


def held_out_windows(model: Any, folder: Path) -> Any:
    """Those of the two texts that a training without text of the model's own holds out."""
    from kvcompress.profiles._kinds import cut
    from kvcompress.profiles._native import write_cache
    from kvcompress.profiles._placement import Window

    windows = []
    tokens = [model.tokenize(each) for each in TEXTS.values()]
    for i, window in enumerate(cut(tokens, TOKENS + FED, 2, held_out=True)):
        cache = model.prefill(window[:TOKENS])
        write_cache(cache, folder / f"{i}.safetensors")
        with torch.no_grad():
            base = model.predict(cache, window[TOKENS:])
        fed = tuple(window[TOKENS:])
        windows.append(Window(folder / f"{i}.safetensors", fed, base, list(TEXTS)[i]))
    return windows


def test_the_presets_do_what_the_profile_says(language_model: Any, tmp_path: Path) -> None:
    """Measured again, on the windows that they were placed on."""
    from kvcompress.profiles._placement import SHARES, Judge, shares_of

    info = train(language_model, tmp_path, "tiny.profile", own=0, shares=SHARES)
    assert [preset.name for preset in info.presets] == list(SHARES)
    assert "metric=given fisher samples=1 " in info.training
    assert "windows=4x120 own=0" in info.training
    judge = Judge(language_model, held_out_windows(language_model, tmp_path))
    int4 = judge.measure(["-codec", "int4"])
    for preset in info.presets:
        found = judge.measure(["-codec", f"klt:{preset.name}"], tmp_path / "tiny.profile")
        expected = preset.expected
        assert expected is not None
        assert found.ratio == pytest.approx(expected.ratio, rel=1e-6)
        assert found.divergence == pytest.approx(expected.divergence, rel=1e-3)
        shares = shares_of(judge.windows, found.divergences, int4.divergences)
        assert shares.least == pytest.approx(expected.least_share, rel=1e-3)
        assert shares.most <= expected.most_share * 1.001
    ratios = [preset.expected.ratio for preset in info.presets if preset.expected]
    assert ratios == sorted(ratios)


def test_a_training_without_text(language_model: Any, tmp_path: Path) -> None:
    """The model writes it; each family of beginnings is left out of a basis once."""
    info = train(language_model, tmp_path, "own.profile", {})
    assert "windows=0x120 own=5" in info.training
    assert all(each.expected and each.expected.most_share > 0 for each in info.presets)
    bases = [line for line in SAID if "basis" in line]
    assert bases == [f"a basis of {count} windows is found" for count in (5, 4, 4, 4, 4, 4)]
    train(language_model, tmp_path, "both.profile")
    bases = [line for line in SAID if "basis" in line]
    # Of all, and without either file.
    assert bases == [f"a basis of {count} windows is found" for count in (9, 7, 7)]
    with pytest.raises(ValueError, match="no text to train on"):
        train(language_model, tmp_path, "none.profile", {}, own=0)


def test_the_profile_of_a_model_is_found(language_model: Any, trained: Path) -> None:
    """By the configuration that transformers has, with its own rotary embedding."""
    digest = read_profile(trained / "tiny.profile").digest
    assert for_model(language_model.model, trained) == digest
    with pytest.raises(LookupError, match="no profile"):
        for_model(language_model.model, trained, label="another")


def test_from_caches_alone(language_model: Any, tmp_path: Path) -> None:
    info = train(language_model, tmp_path, "alone.profile", samples=0)
    assert "metric=spread" in info.training
    assert all(preset.expected for preset in info.presets)


@pytest.mark.parametrize(("text", "count"), [("fast", 512), ("fine", 2048), ("8192", 8192)])
def test_how_many_components(text: str, count: int) -> None:
    from kvcompress.profiles.__main__ import _parser

    flags = ["train", "--model", "m", "--output", "o", "--components"]
    assert _parser().parse_args([*flags, text]).components == count


@pytest.mark.parametrize("text", ["quick", "0", "-1", "8193", "1e3", ""])
def test_components_that_are_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--model", "m", "--output", "o", f"--components={text}"])
    assert "neither 1 to 8192 nor one of fast, balanced, fine" in capsys.readouterr().err


def test_the_metric_tells_channels_that_matter(language_model: Any) -> None:
    """Noise of one length does more where the metric is large."""
    from kvcompress.profiles._metric import MetricFinder
    from kvcompress.profiles._model import divergence

    ids = language_model.tokenize(text(3))[: TOKENS + FED]
    cache = language_model.prefill(ids[:TOKENS])
    finder = MetricFinder([None] * len(cache))
    finder.add_cache(cache)
    generator = torch.Generator().manual_seed(0)
    for gradients in language_model.gradients(cache, ids[TOKENS:], 4, generator):
        finder.add_gradients(gradients)
    values, vectors = torch.linalg.eigh(finder.metric()["layer_1_value"].double())
    assert values[-1] > 2 * values[0] > 0
    base = language_model.predict(cache, ids[TOKENS:])
    done = []
    for direction in (vectors[:, :8], vectors[:, -8:]):
        noise = torch.randn(TOKENS, 8, generator=generator) @ direction.T.float()
        keys, kept = cache[1]
        heads, channels = kept.shape[1], kept.shape[3]
        shaped = noise.reshape(TOKENS, heads, channels).permute(1, 0, 2)[None]
        changed = [cache[0], (keys, kept + 0.1 * kept.std() * shaped)]
        done.append(divergence(base, language_model.predict(changed, ids[TOKENS:])))
    assert done[1] > done[0]


def test_a_rotation_of_neighbours_is_refused(language_model: Any) -> None:
    from kvcompress.profiles._metric import check_halves

    cache = language_model.prefill(language_model.tokenize(text(4))[:TOKENS])
    rotations = language_model.rotations(TOKENS)
    rows = [(torch.ones(1, 2, TOKENS, k.shape[-1]), v) for k, v in cache]
    turned = []
    for (keys, values), rotation in zip(rows, rotations, strict=True):
        back = type(rotation)(-rotation.radians, rotation.cosine, -rotation.sine)
        turned.append((back.undo(keys), values))
    check_halves(turned, rotations)
    pairs = rotations[0].cosine.shape[-1]
    order = torch.arange(2 * pairs).reshape(2, pairs).T.reshape(-1)
    with pytest.raises(ValueError, match="turns neighbouring channels"):
        check_halves([(keys[..., order], values) for keys, values in turned], rotations)


def test_steps_are_placed_between_those_that_are_measured() -> None:
    from kvcompress.profiles._placement import find_step

    steps = [1.0, 2.0, 4.0, 8.0]
    asked = []

    def divergence_of(index: int) -> float:
        asked.append(index)
        return steps[index] ** 2

    assert find_step(9.0, steps, divergence_of) == pytest.approx(3.0)
    assert find_step(0.5, steps, divergence_of) == 1.0
    assert find_step(100.0, steps, divergence_of) == 8.0


def test_the_report(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trained / "tiny.profile"
    assert main(["report", str(path)]) == 0
    assert capsys.readouterr().out == format_report(read_profile(path))
    broken = tmp_path / "broken"
    for data, words in ((b"x", "no safetensors header"), (b"\2\0\0\0\0\0\0\0{}", "no profile")):
        broken.write_bytes(data)
        assert main(["report", str(broken)]) == 1
        assert words in capsys.readouterr().err


def test_the_report_of_a_training(trained: Path) -> None:
    """Finer presets lose less, in each layer; the chart has a curve for each and role."""
    page = (trained / "tiny.report.md").read_text()
    assert page.startswith(format_report(read_profile(trained / "tiny.profile")))
    assert "Peak memory: " in page
    assert "](tiny.report.svg)" in page
    table = page[page.index("| layer | high | max | ultra |") :].splitlines()
    assert len(table) == 4
    for line in table[2:]:
        cells = [float(cell.split(",")[0]) for cell in line.split("|")[2:-1]]
        assert cells == sorted(cells, reverse=True)
    chart = (trained / "tiny.report.svg").read_text()
    ElementTree.fromstring(chart)
    assert chart.count("<polyline") == 6


def test_a_text_that_is_too_short() -> None:
    from kvcompress.profiles._kinds import cut

    with pytest.raises(ValueError, match="text 2 has 50 tokens, too few"):
        cut([range(1000), range(50)], 100, 2, held_out=False)


def test_shares_by_kind() -> None:
    """Quotients of means; bounds are 1.65 standard errors higher, of the spread of all windows."""
    from kvcompress.profiles._placement import Window, shares_of

    windows = [Window(Path(), (), torch.zeros(1), kind) for kind in ("a", "a", "b", "b")]
    shares = shares_of(windows, [1.0, 4.0, 1.0, 1.0], [2.0, 2.0, 4.0, 4.0])
    assert shares.by_kind == {"a": 1.25, "b": 0.25}
    assert shares.least == 0.25
    # Windows of a are off by 0.6 of their mean, those of b not at all.
    spread = math.sqrt(2 * 0.6**2 / 2)
    assert shares.most == pytest.approx(1.25 * (1 + 1.65 * spread / math.sqrt(2)))
    # One that hardly shows a codec does not make the others doubtful.
    quiet = [*windows, Window(Path(), (), torch.zeros(1), "b")]
    changed, reference = [1.0, 4.0, 1.0, 1.0, 1e-6], [2.0, 2.0, 4.0, 4.0, 1e-3]
    assert shares_of(quiet, changed, reference).most < shares.most
    alone = shares_of(windows[1:3], [1.0, 1.0], [2.0, 4.0])
    assert alone.by_kind == alone.bounds == {"a": 0.5, "b": 0.25}


def test_windows_on_which_int4_breaks_the_model_are_limited() -> None:
    """To five times the median, so that one does not hide the others of its kind."""
    from kvcompress.profiles._placement import Window, limited, shares_of

    assert limited([0.1, 0.2, 0.3]) == [0.1, 0.2, 0.3]
    assert limited([0.1, 9.0, 0.2, 0.3, 0.1]) == [0.1, 1.0, 0.2, 0.3, 0.1]
    windows = [Window(Path(), (), torch.zeros(1), "a") for _ in range(4)]
    changed, reference = [0.05, 0.05, 0.05, 0.06], [0.1, 0.1, 0.1, 9.0]
    assert shares_of(windows, changed, reference).least < 0.03
    assert shares_of(windows, changed, limited(reference)).least == pytest.approx(0.21 / 0.8)


def test_folds() -> None:
    """A fold for each kind, and five at most."""
    from kvcompress.profiles._kinds import Kind, folds_of

    kinds = [Kind(name, [[1]], [[2]]) for name in "abcdefg"]
    for count, sizes in ((0, []), (1, [1]), (3, [1, 1, 1]), (7, [2, 2, 1, 1, 1])):
        folds = folds_of(kinds[:count])
        assert [len(fold) for fold in folds] == sizes
        assert {kind.name for fold in folds for kind in fold} == set("abcdefg"[:count])


def test_what_a_model_writes(language_model: Any) -> None:
    """As many and as long as was asked, the same for a seed, and each family by its own starts."""
    from kvcompress.profiles import _own_text

    counts = {"prose": 2, "code": 1}
    one, again, other = (
        _own_text.write(language_model, counts, 40, seed, print) for seed in (1, 1, 2)
    )
    assert one == again != other
    assert {name: [len(each) for each in texts] for name, texts in one.items()} == {
        "prose": [40, 40],
        "code": [40],
    }
    start = language_model.tokenize(_own_text.STARTS["code"][0])[0]
    assert one["code"][0][len(language_model.first_tokens)] == start
