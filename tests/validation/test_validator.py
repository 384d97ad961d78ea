# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The validator without a model: quick test, command line, sizes and pools of numbers."""

import json
import math
import os
import re
import subprocess
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import compression_bridge
from kv_cache_utils import TINYLLAMA_NUM_KV_HEADS, TINYLLAMA_NUM_LAYERS, KVCacheMetadata
from measure.page import page
from measure.result import comparison, snr_by_layer
from measure.scores import Estimate, WindowScore, interval, summarize
from measure.validation import Outcome, TextNotFoundError, fit, load_text
from validate_perplexity import ValidationResult, main, parse, print_result, run_quick_test

REAL_SAMPLE = "real sample: 51 of 60 tensors outside the thresholds"


def test_the_quick_test_tells_flattering_data_from_real(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = run_quick_test()
    output = capsys.readouterr().out
    assert result.passed
    assert result.tensors == 2 * TINYLLAMA_NUM_LAYERS
    assert result.tensors_failed == 0
    assert math.isnan(result.delta)
    assert "Real sample: 51 of 60 tensors outside the thresholds" in output
    assert "[OK] PASSED ON SYNTHETIC DATA, which flatters: RMSE < 0.1" in output


def test_auto_holds_on_real_data_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick-test", "--codec", "auto"]) == 0
    assert "Real sample: within the thresholds" in capsys.readouterr().out


def test_a_codec_that_fails_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick-test", "--codec", "ecsq:max"]) == 1
    assert "[X] FAILED" in capsys.readouterr().out


def test_json_goes_alone_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick-test", "--json", "--codec", "int8", "--codec", "lossless"]) == 0
    captured = capsys.readouterr()
    int8, lossless = json.loads(captured.out)
    assert int8["codec"] == "int8"
    assert int8["delta"] is None
    assert lossless["rmse"] == 0
    assert lossless["snr_db"] is None
    assert "Quick Test" in captured.err


def test_json_into_a_file_and_a_quiet_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    assert main(["--quick-test", "--quiet", "--json", str(file)]) == 0
    assert json.loads(file.read_text())[0]["passed"] is True
    assert capsys.readouterr().out == f"int4: PASSED on synthetic data; {REAL_SAMPLE}\n"


def test_an_unknown_codec_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick-test", "--codec", "nonsense"]) == 2
    assert 'unknown codec "nonsense"' in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--plot", "a.png", "--quick-test"], ["--windows", "0"]])
def test_flags_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 2


def test_the_flags_of_old_have_their_defaults() -> None:
    parsed = parse([])
    assert (parsed.quick_test, parsed.cpu, parsed.threshold, parsed.quiet) == (
        False,
        False,
        0.5,
        False,
    )


def test_the_verdict_is_that_of_the_measured_delta() -> None:
    scores = [WindowScore(10, 2.0, 2.1, 0.02, 0.9), WindowScore(10, 3.0, 3.0, 0.01, 1.0)]
    outcome = Outcome(summarize(scores), 4.0, 0.1, 20.0, 0.99, 60, 3, {})
    delta = math.exp(2.55) - math.exp(2.5)
    for threshold, passed in ((delta * 1.01, True), (delta * 0.99, False)):
        result = ValidationResult.from_outcome(outcome, "int4", threshold)
        assert result.delta == pytest.approx(delta)
        assert result.passed is passed
    assert result.delta_percent == pytest.approx(100 * delta / math.exp(2.5))
    assert result.bits_per_value == 4.0
    print_result(result)


def scored(*pairs: tuple[float, float], threshold: float = 0.5) -> ValidationResult:
    """A result of windows with these negative log-likelihoods: own cache, changed cache."""
    scores = [WindowScore(8, own, changed, abs(changed - own), 0.9) for own, changed in pairs]
    snr = {f"layer_{i}_{part}": 20.0 + i for i in range(3) for part in ("key", "value")}
    outcome = Outcome(summarize(scores), 4.0, 0.1, 20.0, 0.99, 60, 3, snr, (0.01, 0.02, 0.04))
    return ValidationResult.from_outcome(outcome, "int4", threshold)


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ([(2.0, 2.001), (2.2, 2.202), (2.1, 2.101)], "PASSED"),
        ([(2.0, 2.3), (2.2, 2.51), (2.1, 2.4)], "FAILED"),
        ([(2.0, 2.2), (2.2, 2.1), (2.1, 2.2)], "INCONCLUSIVE"),
        # Two windows once failed by 0.98, with a standard error of 0.97.
        ([(2.0, 2.22), (2.2, 2.2)], "INCONCLUSIVE"),
        ([(2.0, 2.001)], "INCONCLUSIVE"),
        ([(2.0, 2.0)], "PASSED"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_of_the_threshold(
    pairs: list[tuple[float, float]], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = scored(*pairs)
    assert result.verdict == verdict
    assert result.to_dict()["verdict"] == verdict
    assert verdict in result.headline()
    assert "KL" in result.headline()
    print_result(result)
    assert f"] {verdict}: " in capsys.readouterr().out


def test_the_interval_is_that_of_student() -> None:
    assert interval(Estimate(1.0, 0.1), 4) == pytest.approx((1 - 0.3182, 1 + 0.3182))
    assert interval(Estimate(1.0, 0.1), 1000) == pytest.approx((1 - 0.2042, 1 + 0.2042))
    assert all(map(math.isnan, interval(Estimate(1.0, math.nan), 1)))


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["PASSED", "PASSED"], 0),
        (["PASSED", "INCONCLUSIVE"], 3),
        (["INCONCLUSIVE", "FAILED"], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst(
    verdicts: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = {
        "PASSED": scored((2.0, 2.0)),
        "FAILED": scored((2.0, 2.3), (2.2, 2.5), (2.1, 2.4)),
        "INCONCLUSIVE": scored((2.0, 2.2)),
    }
    monkeypatch.setattr("validate_perplexity._run", lambda _: [of[name] for name in verdicts])
    assert main(["--quiet"]) == code


def test_layers_are_in_the_order_of_layers() -> None:
    """Files have layer_10 before layer_2, and charts once had it there."""
    tensors = {"layer_0_key": 0.0, "layer_10_key": 10.0, "layer_2_key": 2.0, "layer_2_value": 1.0}
    assert snr_by_layer(tensors, "key") == [0, 2, 10]


def test_codecs_are_compared_in_a_table() -> None:
    lines = comparison([scored((2.0, 2.1), (2.2, 2.3)), scored((2.0, 2.0))]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split()[:4] == ["codec", "ratio", "KL,", "nats/token"]
    assert "0.10000 ± " in lines[1]
    assert lines[2].endswith("PASSED")


def test_the_table_has_shares_of_int4() -> None:
    """Where int4 is among the codecs."""
    other = replace(scored((2.0, 2.05), (2.2, 2.25)), codec="klt:max")
    plain = replace(scored((2.0, 2.1), (2.2, 2.3)), codec="int4")
    heading, first, second = comparison([other, plain]).splitlines()
    assert "of int4's" in heading
    assert re.search(r" 50%  ", first)
    assert re.search(r" 100%  ", second)
    assert "of int4's" not in comparison([other])


class Page(HTMLParser):
    """Checks that elements are closed in order, and keeps text and charts."""

    def __init__(self, text: str) -> None:
        """Reads a page."""
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins; but for meta it has to end."""
        self.found.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """The innermost element ends."""
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element that ends itself."""
        self.found.append((tag, dict(attrs)))


def test_the_page_has_all_charts_and_loads_nothing() -> None:
    results = [
        replace(scored((2.0, 2.1), (2.2, 2.3)), codec="<script>"),
        scored((2.0, 2.05), (2.2, 2.3)),
        scored((2.0, 2.0), (2.2, 2.2)),
    ]
    text = page(results, {"model": "a & b"})
    found = Page(text).found
    assert sum(tag == "svg" for tag, _ in found) == 4
    assert not any({"src", "href"} & set(attributes) for _, attributes in found)
    assert "script" not in [tag for tag, _ in found]
    assert "a &amp; b" in text
    assert "nan" not in re.sub("<style>.*</style>", "", text, flags=re.DOTALL)


def test_the_page_of_the_real_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each codec by what it does to a real cache, not to synthetic data."""
    file = tmp_path / "report.html"
    codecs = ("--codec", "int4", "--codec", "auto")
    assert main(["--quick-test", "real", *codecs, "--html", str(file)]) == 1
    output = capsys.readouterr().out
    assert "[X] FAILED: Real sample: 51 of 60 tensors outside the thresholds" in output
    assert "[OK] PASSED: Real sample: within the thresholds" in output
    assert re.search(r"(?m)^auto +4\.\d\dx .* 100% +PASSED$", output)
    found = Page(file.read_text()).found
    assert sum(tag == "svg" for tag, _ in found) == 3
    assert main(["--quick-test", "real", "--codec", "auto", "--quiet"]) == 0
    assert capsys.readouterr().out == "auto: PASSED\n"


def test_no_verdict_on_synthetic_data_stands_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In whatever form it is given."""
    page_file, json_file = tmp_path / "report.html", tmp_path / "result.json"
    files = ("--html", str(page_file), "--json", str(json_file))
    assert main(["--quick-test", "--codec", "int4", "--codec", "auto", *files]) == 0
    passed = rf"(?m)^int4 .* PASSED on synthetic data; {REAL_SAMPLE}$"
    assert re.search(passed, capsys.readouterr().out)
    assert page_file.read_text().count(REAL_SAMPLE) == 2
    assert json.loads(json_file.read_text())[0]["real_sample"] in REAL_SAMPLE
    assert str(run_quick_test(verbose=False)).splitlines()[0].endswith(REAL_SAMPLE)
    assert run_quick_test(verbose=False, sample="real").real_sample == ""


def test_help_needs_no_environment() -> None:
    """A Python without packages says what the flags are, and how to have the packages."""
    script = Path(__file__).parents[2] / "validation" / "validate_perplexity.py"
    python = ["/usr/bin/python3", "-I", "-S", "-c"]
    code = (
        f"import sys; sys.path.insert(0, {str(script.parent)!r}); import validate_perplexity as v"
    )
    environment = {**os.environ, "COLUMNS": "100"}
    for arguments, status, words in (
        ("['--help']", 0, "3 none failed and one is inconclusive"),
        ("['--quick-test']", 2, "deploy/python-env --no-deps validation/requirements.txt"),
    ):
        done = subprocess.run(
            [*python, f"{code}; sys.exit(v.main({arguments}))"],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == status, done.stderr
        assert words in " ".join((done.stdout + done.stderr).split())


def test_the_first_fields_are_those_of_old() -> None:
    assert [field.name for field in fields(ValidationResult)][:10] == [
        "baseline_perplexity",
        "compressed_perplexity",
        "delta",
        "delta_percent",
        "compression_ratio",
        "rmse",
        "snr_db",
        "cosine_similarity",
        "passed",
        "threshold",
    ]
    assert ValidationResult(16.0, 16.1, 0.1, 0.6, 3.76, 0.04, 25.0, 0.999, True).threshold == 0.5


def test_a_result_says_its_verdict_and_what_was_measured() -> None:
    text = str(ValidationResult(16.5, 16.55, 0.05, 0.3, 3.76, 0.04, 25.0, 0.999, True))
    assert text.splitlines() == [
        "int4: PASSED",
        "  perplexity         16.5000 -> 16.5500",
        "  delta              +0.0500 (+0.30 %), to be below 0.5",
        "  compression ratio  3.76x",
        "  RMSE               0.040000",
        "  SNR                25.00 dB",
        "  cosine similarity  0.999000",
    ]
    nan, inf = math.nan, math.inf
    exact = str(ValidationResult(nan, nan, nan, nan, 1.5, 0.0, inf, 1.0, False, codec="lossless"))
    assert exact.startswith("lossless: FAILED\n  compression ratio")
    assert "SNR                exact" in exact


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(10_000, (4, 512, 128)), (1_300, (2, 512, 128)), (641, (1, 512, 128)), (100, (1, 75, 24))],
)
def test_a_short_text_gives_fewer_windows_then_a_shorter_one(
    tokens: int, expected: tuple[int, int, int]
) -> None:
    assert fit(tokens, 4, 512, 128) == expected
    windows, prefix, continuation = expected
    assert windows * (prefix + continuation + 1) <= tokens


def test_a_text_of_a_few_words_is_refused() -> None:
    with pytest.raises(ValueError, match="15 tokens"):
        fit(15, 4, 512, 128)


def test_a_text_file_is_read_and_a_missing_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("É")
    assert load_text(str(file)) == "É"
    with pytest.raises(TextNotFoundError, match=r"no such text file: .*other\.txt"):
        load_text(str(tmp_path / "other.txt"))


def test_a_missing_text_ends_the_run_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--text", str(tmp_path / "none.txt"), "--model", "none"]) == 2
    assert "no such text file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", " \n\t\n" * 10_000])
def test_a_blank_text_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model would read the spaces, and a verdict would rest on them."""
    file = tmp_path / "text.txt"
    file.write_text(text)
    assert main(["--text", str(file), "--model", "none"]) == 2
    assert f"the text {file} is blank" in capsys.readouterr().err


def test_metadata_goes_to_json_and_back() -> None:
    metadata = KVCacheMetadata(22, TINYLLAMA_NUM_KV_HEADS, 95, 64, "float16", "model")
    assert KVCacheMetadata.from_dict(json.loads(json.dumps(metadata.to_dict()))) == metadata
    assert KVCacheMetadata.from_dict({**metadata.to_dict(), "more": 1}) == metadata


def test_a_missing_service_is_found_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a model is loaded."""
    monkeypatch.setattr(compression_bridge, "REPOSITORY", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("KVCOMPRESS_SERVER", "KV_COMPRESS_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert main(["--model", "absent", "--text", "absent"]) == 2
    assert "kv-compress is neither in bin/ nor on the PATH" in capsys.readouterr().err
