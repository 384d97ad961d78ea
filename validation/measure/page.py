# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The validator's report as one HTML page that loads nothing: verdicts, a table and charts."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from compression_bridge import format_db
from measure.charts import COLOURS, Series, lines_chart, points_chart
from measure.result import ValidationResult, snr_by_layer, table

_BINS = 16  # positions are averaged into at most so many
_MINIMUM_SNR_DB = 18.0  # the usual threshold

_STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1c2733;--soft:#5a6774;--line:#dfe4e8;
--card:#f6f8fa;--good:#12743a;--bad:#b3261e;--open:#8a5a00;--c0:#0b5fa5;--c1:#c2570c;--c2:#12743a;
--c3:#8250b4;--c4:#8a6d00;--c5:#b8336a;--c6:#0b7a85;--c7:#5a6774}
@media(prefers-color-scheme:dark){:root{--page:#12181f;--text:#e4e9ee;--soft:#9fabb7;--line:#333d47;
--card:#1a222b;--good:#5fc98a;--bad:#ff8a80;--open:#f0b94d;--c0:#6cb2f0;--c1:#f59a5a;--c2:#5fc98a;
--c3:#c39bf0;--c4:#d9bd4a;--c5:#f07fae;--c6:#4fc6d2;--c7:#9fabb7}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:68rem;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p,figcaption{max-width:46rem}.soft,figcaption{color:var(--soft);font-size:.9rem}
.cards,.charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(10.2rem,1fr))}
.charts{grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr))}
.card{background:var(--card);border:1px solid var(--line);border-top:4px solid;border-radius:6px;
padding:.6rem .7rem}
.card h3{margin:0;font-size:1rem;overflow-wrap:anywhere}.card b{font-size:1.05rem}
.card dl{color:var(--text);display:grid;grid-template-columns:auto 1fr;gap:0 .3rem;
margin:.5rem 0 0;font-size:.85rem}
dd{margin:0;text-align:right}
.PASSED{color:var(--good)}.FAILED{color:var(--bad)}.INCONCLUSIVE{color:var(--open)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .6rem;border-bottom:1px solid var(--line);text-align:right}
th:first-child,td:first-child{text-align:left}
figure{margin:0}svg{width:100%;height:auto;display:block}
svg text{font:13px system-ui,sans-serif;fill:var(--text)}svg .tick{fill:var(--soft);font-size:12px}
svg path{fill:none;stroke-width:1.6}.grid{stroke:var(--line)}.axis{stroke:var(--soft)}
.bound{stroke:var(--soft);stroke-dasharray:2 3}.line{stroke-width:2}
.key span{display:inline-block;margin-right:1rem}
.key i{display:inline-block;width:1.4rem;height:.25rem;margin-right:.4rem;vertical-align:middle}
@media(max-width:46rem){thead{display:none}tr{display:block;border:1px solid var(--line);
border-radius:6px;margin:0 0 .75rem;padding:.25rem .75rem}
td{display:flex;justify-content:space-between;border:0;padding:.15rem 0}
td:first-child{font-weight:bold}td:not(:first-child)::before{content:attr(data-name);text-align:left;
color:var(--soft)}}
"""


def page(results: Sequence[ValidationResult], setup: Mapping[str, str]) -> str:
    """Returns the page.

    Args:
        results: What was found for each codec, at least one.
        setup: What was run: names and values, shown as they are.
    """
    facts = "; ".join(f"{escape(name)}: {escape(value)}" for name, value in setup.items())
    body = [
        "<h1>KV cache compression: validation</h1>",
        f'<p class="soft">{facts}</p>',
        f'<div class="cards">{"".join(map(_card, results))}</div>',
        "<h2>Codecs</h2>",
        _table(results),
        '<h2>Charts</h2><p class="key">',
        *(
            f'<span><i style="background:var(--c{i % COLOURS})"></i>{escape(each.codec)}</span>'
            for i, each in enumerate(results)
        ),
        f'</p><div class="charts">{"".join(_charts(results))}</div>',
        _reading(results[0]),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>KV cache compression: validation</title><style>{_STYLE}</style>"
        f"<main>{''.join(body)}</main></html>\n"
    )


def _card(result: ValidationResult) -> str:
    """Verdict and headline of a codec."""
    measured = not math.isnan(result.kl)
    first = ("KL", f"{result.kl:.3g}") if measured else ("SNR", format_db(result.snr_db))
    facts = [first, ("ratio", f"{result.compression_ratio:.2f}x")]
    if measured:
        facts.append(("perplexity", f"{result.delta:+.3f}"))
    items = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
    return (
        f'<section class="card {result.verdict}"><h3>{escape(result.codec)}</h3>'
        f"<b>{escape(result.verdict_text)}</b><dl>{items}</dl></section>"
    )


def _table(results: Sequence[ValidationResult]) -> str:
    """The table of the terminal; on a phone a block for each codec."""
    names, *rows = table(results)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = []
    for row in rows:
        cells = "".join(
            f'<td data-name="{escape(name)}"><span>{escape(value)}</span></td>'
            for name, value in zip(names, row, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def _charts(results: Sequence[ValidationResult]) -> list[str]:
    """Rate and distortion, signal-to-noise ratio by layer, KL divergence by position."""
    figures = []
    if not math.isnan(results[0].kl):
        rate = [
            Series(each.codec, i, [(each.bits_per_value, each.kl)], [each.kl_error])
            for i, each in enumerate(results)
        ]
        exact = ", ".join(each.codec for each in results if each.kl == 0)
        note = f" Not drawn, as it is 0: {exact}." if exact else ""
        figures.append(
            _figure(
                points_chart(rate, "bits per value, whole files", "KL divergence, nats per token"),
                "Rate and distortion: lower left is better. Bars: one standard error." + note,
            )
        )
    else:
        rate = [
            Series(each.codec, i, [(each.bits_per_value, each.snr_db)])
            for i, each in enumerate(results)
        ]
        figures.append(
            _figure(
                points_chart(rate, "bits per value, whole files", "SNR, dB", logarithmic=False),
                "Rate and distortion of the values: upper left is better. No model was run.",
            )
        )
    if any(each.layer_snr_db for each in results):
        for part, name in (("key", "keys"), ("value", "values")):
            chart = lines_chart(_layers(results, part), "layer", "SNR, dB", bound=_MINIMUM_SNR_DB)
            figures.append(
                _figure(chart, f"Signal-to-noise ratio of {name} by layer. Dotted: 18 dB.")
            )
    if any(value > 0 for each in results for value in each.position_kl):
        lines = [Series(each.codec, i, _binned(each)) for i, each in enumerate(results)]
        figures.append(
            _figure(
                lines_chart(
                    lines, "tokens after the prefix", "KL, nats per token", logarithmic=True
                ),
                "KL divergence by position: whether the effect fades or grows with distance.",
            )
        )
    return figures


def _layers(results: Sequence[ValidationResult], part: str) -> list[Series]:
    """SNR of keys, or of values, by layer; none for a codec that is exact."""
    return [
        Series(each.codec, i, list(enumerate(snr_by_layer(each.layer_snr_db, part))))
        for i, each in enumerate(results)
    ]


def _binned(result: ValidationResult) -> list[tuple[float, float]]:
    """Means over runs of neighbouring positions, each at its middle."""
    values = result.position_kl
    size = max(1, math.ceil(len(values) / _BINS))
    runs = [values[begin : begin + size] for begin in range(0, len(values), size)]
    return [(i * size + (len(run) + 1) / 2, sum(run) / len(run)) for i, run in enumerate(runs)]


def _reading(result: ValidationResult) -> str:
    """What the words of the page mean."""
    if math.isnan(result.kl):
        return (
            "<h2>How to read this</h2><p>No model was run: these are errors of values, not their "
            "effect. In bounds is the share of tensors within RMSE &lt; 0.1, maximum error &lt; "
            "0.5, SNR &gt; 18 dB and cosine similarity &gt; 0.99.</p>"
        )
    return (
        "<h2>How to read this</h2><p>The model read each window; its KV cache was compressed, "
        "restored and put back; the model went on. KL divergence compares its predictions with "
        "those it makes with its own cache: 0 is no effect. Perplexity is the rise, with a 95 % "
        f"confidence interval over {result.windows} windows. PASSED: the whole interval is below "
        f"{result.threshold:g}. FAILED: none of it is. INCONCLUSIVE: it contains "
        f"{result.threshold:g}; more windows make it narrower. In bounds is the share of tensors "
        "within RMSE &lt; 0.1, maximum error &lt; 0.5, SNR &gt; 18 dB and cosine similarity &gt; "
        "0.99.</p>"
    )
