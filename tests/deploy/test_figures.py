# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What documents say of results is what the results say; deploy/figures.py writes the tables."""

import re
from collections.abc import Iterator
from types import SimpleNamespace

import figures
import pytest
from documents import DOCUMENTS, text_of

import results

STUDIES = {
    "smollm2": results.PROFILES[0],
    "gemma": results.PROFILES[1],
    "qwen": results.PROFILES[2],
    "qwen_unusual": f"{results.RESULTS}/profiles-qwen2.5-coder-unusual/profile_study",
    "smollm2_contract": results.CONTRACTS[0],
    "gemma_contract": results.CONTRACTS[1],
    "exact": f"{results.RESULTS}/lossless-smollm2/profile_study",
    "exact_unusual": f"{results.RESULTS}/lossless-smollm2-unusual/profile_study",
    "exact_gemma": f"{results.RESULTS}/lossless-gemma3/profile_study",
    "gemma_unusual": f"{results.RESULTS}/profiles-gemma3-unusual/profile_study",
    "smollm2_all": f"{results.RESULTS}/profiles-smollm2-all/profile_study",
    "smollm2_caches": f"{results.RESULTS}/profiles-smollm2-caches/profile_study",
    "smollm2_without": results.TEN[0],
    "gemma_without": results.TEN[1],
    "tokens_512": f"{results.RESULTS}/tokens-512/codec_study",
    "tokens_4096": f"{results.RESULTS}/tokens-4096/codec_study",
    "codecs": results.CODECS,
    "now": results.MODELS[0],
    "now_gemma": results.MODELS[1],
    "now_qwen": results.MODELS[2],
    "others": results.OTHERS,
}
# What documents say of results, without regard to where lines end. Rows are those of STUDIES, with
# `high` for `profile high` and `_` for a space.
SENTENCES = {
    "docs/guides/profiles.md": (
        "| `klt:high`, [profile](../../validation/results/profiles-smollm2/profile_study.md) |"
        " {smollm2.high.x1}x | {smollm2.high.percent} % |",
        "| `klt:ultra`, [profile](../../validation/results/profiles-smollm2/profile_study.md) |"
        " {smollm2.ultra.x1}x | {smollm2.ultra.percent} % |",
        "| `klt:ultra`, [no profile]"
        "(../../validation/results/without-profile-smollm2/profile_study.md) |"
        " {smollm2_without.klt_ultra.x1}x | {smollm2_without.klt_ultra.percent} % |",
        "the ratio is {smollm2_contract.contract.x1}x with [165 caches of",
    ),
    "docs/codecs/klt-profile.md": (
        "[{exact.lossless.x2}x](../../validation/results/lossless-smollm2/profile_study.md)",
        "[{exact_unusual.lossless.x2}x]"
        "(../../validation/results/lossless-smollm2-unusual/profile_study.md)",
        "[{exact_gemma.lossless.x2}x](../../validation/results/lossless-gemma3/profile_study.md)",
        "[{gemma.lossless.x2}x](../../validation/results/profiles-gemma3/profile_study.md)",
        "[{gemma_unusual.lossless.x2}x]"
        "(../../validation/results/profiles-gemma3-unusual/profile_study.md)",
        "{smollm2.high.x1}x, {smollm2.high.percent} % |",
        "`best` | not measured | {smollm2.high_best.x1}x, {smollm2.high_best.percent} % |",
        "| {smollm2.max.x1}x, {smollm2.max.percent} % |",
        "| {smollm2.ultra.x1}x, {smollm2.ultra.percent} % |",
        "[{smollm2_without.klt_ultra.x1}x, {smollm2_without.klt_ultra.percent} %]",
        "| {smollm2_all.high.x1}x, {smollm2_all.high.percent} % |",
        "| {smollm2_all.max.x1}x, {smollm2_all.max.percent} % |",
        "| {smollm2_all.ultra.x1}x, {smollm2_all.ultra.percent} % |",
        "| `high` | {smollm2_caches.high.x1}x, {smollm2_caches.high.percent} % |",
        "| `max` | {smollm2_caches.max.x1}x, {smollm2_caches.max.percent} % |",
        "| `ultra` | {smollm2_caches.ultra.x1}x, {smollm2_caches.ultra.percent} % |",
        "| {gemma.high.x1}x, {gemma.high.percent} % |",
        "| {gemma.high_best.x1}x, {gemma.high_best.percent} % |",
        "| {gemma.max.x1}x, {gemma.max.percent} % |",
        "| {gemma.ultra.x1}x, {gemma.ultra.percent} % |",
        "[{gemma_without.klt_ultra.x1}x, {gemma_without.klt_ultra.percent} %]",
        "| {qwen.high.x1}x, {qwen.high.percent} % |",
        "| {qwen.max.x1}x, {qwen.max.percent} % |",
        "| {qwen.ultra.x1}x, {qwen.ultra.percent} % |",
        "[{qwen.lossless.x2}x](../../validation/results/profiles-qwen2.5-coder/profile_study.md)",
        "[{qwen_unusual.lossless.x2}x]"
        "(../../validation/results/profiles-qwen2.5-coder-unusual/profile_study.md)",
        "[{smollm2_contract.contract.x2}x]",
        "on ten windows of other text at {smollm2_contract.contract.percent} % of",
        "`klt:contract` without a profile is {codecs.klt_contract.x2}x, and `ecsq:contract`"
        " {codecs.ecsq_contract.x2}x",
    ),
    "docs/codecs/klt.md": (
        "| SmolLM2-135M: bits per value | {now.klt_contract.bits} | {now.klt_high.bits} |"
        " {now.klt_max.bits} | {now.klt_ultra.bits} |",
        "| SmolLM2-135M: damage, share of `int4`'s | {now.klt_contract.percent1} % |"
        " {now.klt_high.percent} % | {now.klt_max.percent} % | {now.klt_ultra.percent} % |",
        "| Gemma 3 270M: bits per value | {now_gemma.klt_contract.bits} |"
        " {now_gemma.klt_high.bits} | {now_gemma.klt_max.bits} | {now_gemma.klt_ultra.bits} |",
        "| Gemma 3 270M: damage, share of `int4`'s | {now_gemma.klt_contract.percent1} % |"
        " {now_gemma.klt_high.percent1} % | {now_gemma.klt_max.percent} % |"
        " {now_gemma.klt_ultra.percent} % |",
        "| Qwen2.5-Coder-0.5B: bits per value | {now_qwen.klt_contract.bits} |"
        " {now_qwen.klt_high.bits} | {now_qwen.klt_max.bits} | {now_qwen.klt_ultra.bits} |",
        "| Qwen2.5-Coder-0.5B: damage, share of `int4`'s | {now_qwen.klt_contract.percent1} % |"
        " {now_qwen.klt_high.percent1} % | {now_qwen.klt_max.percent} % |"
        " {now_qwen.klt_ultra.percent} % |",
        "| [1,024 tokens](../../validation/results/codec_study.md) | {codecs.klt_contract.bits} |",
        "| 1,024 tokens, effort `best` | {codecs.klt_contract_best.bits} |",
        "| [4,096 tokens](../../validation/results/tokens-4096/codec_study.md) |"
        " {tokens_4096.klt_contract.bits} |",
    ),
    "docs/codecs/ecsq.md": (
        "| bits per value | {codecs.ecsq_contract.bits} | {codecs.ecsq_high.bits} |"
        " {codecs.ecsq_max.bits} |",
        "| damage to a model, of that of `int4` | {codecs.ecsq_contract.percent1} % |"
        " {codecs.ecsq_high.percent} % | {codecs.ecsq_max.percent} % |",
    ),
    "docs/codecs/int8.md": ("| {codecs.int8.percent1} % of that of `int4`",),
    "docs/codecs/int4-hadamard.md": ("| {codecs.int4_hadamard.percent} % of that of `int4`",),
    "docs/codecs/int4-kivi.md": ("| {codecs.int4_kivi.percent} % of that of `int4`",),
    "validation/README.md": (
        "`high` {smollm2.high.x1}x at {smollm2.high.percent} % of `int4`'s damage, `max`"
        " {smollm2.max.x1}x at {smollm2.max.percent} %, `ultra` {smollm2.ultra.x1}x at"
        " {smollm2.ultra.percent} %",
        "{smollm2_all.high.x1}x at {smollm2_all.high.percent} %, {smollm2_all.max.x1}x at"
        " {smollm2_all.max.percent} %, {smollm2_all.ultra.x1}x at {smollm2_all.ultra.percent} %",
        "{gemma.high.x1}x at {gemma.high.percent} %, {gemma.max.x1}x at {gemma.max.percent} %,"
        " {gemma.ultra.x1}x at {gemma.ultra.percent} %",
        "{smollm2_caches.high.x1}x at {smollm2_caches.high.percent} %, {smollm2_caches.max.x1}x at"
        " {smollm2_caches.max.percent} %, {smollm2_caches.ultra.x1}x at"
        " {smollm2_caches.ultra.percent} %",
        "`contract`, from 165 caches alone: {smollm2_contract.contract.x2}x at"
        " {smollm2_contract.contract.percent} %",
        "108 caches of 512 tokens: {gemma_contract.contract.x2}x at"
        " {gemma_contract.contract.percent} %",
        "`contract` {tokens_4096.klt_contract.x2}x at {tokens_4096.klt_contract.percent1} % of",
        "`high` {tokens_4096.klt_high.x2}x at {tokens_4096.klt_high.percent} %",
        "`max` {tokens_4096.klt_max.x1}x at {tokens_4096.klt_max.percent} ±",
        "`ultra` {tokens_4096.klt_ultra.x1}x at {tokens_4096.klt_ultra.percent} ±",
        "after 512: {tokens_512.klt_contract.x2}x at {tokens_512.klt_contract.percent1} %,"
        " {tokens_512.klt_high.x2}x at {tokens_512.klt_high.percent} %, {tokens_512.klt_max.x1}x at"
        " {tokens_512.klt_max.percent} ± 5 %, {tokens_512.klt_ultra.x1}x at"
        " {tokens_512.klt_ultra.percent} ±",
    ),
    "docs/quality.md": (
        "`auto` reaches {others.auto.x2}x at {others.auto.percent1} % of `int4`'s KL divergence,"
        " vLLM's `fp8` {others.vLLM_fp8.x2}x at {others.vLLM_fp8.percent1} %, and quanto with keys"
        " by channel {others.quanto_4_bit_keys_by_channel.x2}x at"
        " {others.quanto_4_bit_keys_by_channel.percent1} %.",
        "On SmolLM2, `hqq 4-bit` has {codecs.hqq_4_bit.percent} % of `int4`'s KL divergence, and"
        " here {others.hqq_4_bit.percent} %.",
        "TurboQuant reaches {others.vLLM_turboquant_k8v4.x2}x to"
        " {others.vLLM_turboquant_3bit_nc.x2}x here",
    ),
    "docs/tutorial.md": ("[{gemma.high.ratio:.0f} to {smollm2.ultra.ratio:.0f} times smaller]",),
}
# Rows of the guide to vLLM, and the ways of the measurement.
VLLM = {
    "none": "compute",
    "`lossless`": "lossless",
    "`ecsq`": "ecsq",
    "`klt`": "klt",
    "`klt:max`, with a profile": "klt:max, profile",
}
LENGTHS = (1024, 2048, 4096, 6144)
# Of Llama-3-8B, as the guide to sizes works out.
TOKEN_BYTES = 131072


def plain(text: str) -> str:
    """Text on one line."""
    return " ".join(text.split())


def rows_of(path: str) -> SimpleNamespace:
    """The rows of a study, under names that a format can have."""
    rows = results.study(path)
    names = {
        re.sub(r"\W+", "_", name.removeprefix("profile ").replace("effort ", "")): row
        for name, row in rows.items()
    }
    return SimpleNamespace(**names)


def sentences() -> Iterator[tuple[str, str]]:
    """Each document, and what it has to say."""
    rows = {name: rows_of(path) for name, path in STUDIES.items()}
    for document, texts in SENTENCES.items():
        for text in texts:
            yield document, text.format(**rows)


@pytest.mark.parametrize("document", figures.BLOCKS)
def test_tables_are_what_the_program_writes(document: str) -> None:
    """Run deploy/figures.py where they are not."""
    text = text_of(document)
    assert figures.written(text, figures.BLOCKS[document]) == text


def test_blocks_are_of_documents_that_are_written() -> None:
    """No other document has one that nothing writes."""
    marked = {name for name in DOCUMENTS if "<!-- figures: " in text_of(name)}
    assert marked == set(figures.BLOCKS)


def test_a_document_without_its_block_is_refused() -> None:
    """And one with a block that nobody knows."""
    for text in ("", "<!-- figures: a -->\n<!-- end of figures -->\n"):
        with pytest.raises(SystemExit, match="blocks of figures"):
            figures.written(text, {"b": str})


def test_sentences() -> None:
    """Of documents that state results outside of those tables."""
    wrong = [
        f"{document}: {text}"
        for document, text in sentences()
        if plain(text) not in plain(text_of(document))
    ]
    assert wrong == []


def test_a_result_without_its_table_is_refused() -> None:
    """By the name of the file, and of the column that the table begins with."""
    with pytest.raises(SystemExit, match=r"SECURITY.md has no table whose first column is 'codec'"):
        results.study("SECURITY")


def test_the_readme_states_no_other_figures() -> None:
    """Its ratios, shares and times are in the tables that are written, and it fits in 130 lines."""
    text = text_of("README.md")
    assert len(text.splitlines()) <= 130
    outside = re.sub(r"(?ms)^<!-- figures: [^\n]+ -->$.*?^<!-- end of figures -->$", "", text)
    assert re.findall(r"\d[\d.,]* ?(?:%|[KMG]B/s|s\b|x\b|times\b)", outside) == ["1x"]


def test_the_guide_to_vllm() -> None:
    """Its table: 4,096 tokens, and the answers over all lengths."""
    known = {length: results.waits(length) for length in LENGTHS}
    guide = text_of("docs/guides/vllm.md")
    for label, way in VLLM.items():
        wait = known[results.TOKENS][way]
        same = sum(known[length][way].same for length in LENGTHS) / len(LENGTHS)
        ratio = f" {wait.ratio:.2f} " if wait.ratio else " "
        answer = "16 of 16" if same == 16 else f"{same:.1f}"
        assert f"| {label} |{ratio}| {wait.p50:.2f} s | {answer} |" in guide


def test_the_guide_to_sizes() -> None:
    """Its costs are those of CAPACITY.md, and what follows from them."""
    guide = text_of("docs/guides/sizing.md")
    costs = {name.replace("`, ", ":").rstrip("`"): cost for name, cost in results.costs().items()}
    cores = re.findall(r"(?m)^\| `([\w:]+)` \| (\d+\.\d\d) \| (\d+\.\d) \|$", guide)
    assert len(cores) == 4
    for name, seconds, wanted in cores:
        assert seconds == f"{costs['`' + name].compress:.2f}", name
        assert wanted == f"{5000 * TOKEN_BYTES / 1e9 * float(seconds):.1f}", name
    # Of the example: 32,768 tokens, once and eight times.
    saves = re.findall(r"(?m)^\| `([\w:]+)` \|.*MiB \| ([\d,]+) s \| ([\d,]+) s \|$", guide)
    assert [name for name, *_ in saves] == [name for name, *_ in cores]
    for name, *times in saves:
        once = costs["`" + name].compress * 32768 * TOKEN_BYTES / 1e9
        assert times == [f"{once:.0f}", f"{8 * once:.0f}"], name
