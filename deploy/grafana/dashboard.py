# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The dashboard, as code: what an operator asks, in the order it is asked.

More than 400 lines: a dashboard is read from its top to its end. Is it up? Is quality held? How
much is saved? Where is the time going? How full is it? Is the store of artefacts large enough?
"""

from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import BigValueColorMode, GraphDrawStyle, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

DATA_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
SERVERS = 'job="$job", instance=~"$instance"'
BAD_CODES = "INTERNAL|UNKNOWN|UNAVAILABLE|RESOURCE_EXHAUSTED"
# Grafana's grid is 24 wide.
STAT_WIDTH, STAT_HEIGHT = 4, 4
GRAPH_WIDTH, GRAPH_HEIGHT = 8, 8


@dataclass(frozen=True)
class Graph:
    """A panel.

    Attributes:
        title: What it answers.
        description: How to read it.
        unit: Grafana's name of the unit.
        queries: PromQL by legend. A legend may name labels, as in `{{codec}}`.
        is_stat: Whether one number is shown instead of its course.
        stacked: Whether the series add up.
        steps: For a number: the values from which on it turns from green to orange and red.
        low_is_bad: Whether low values are the red ones.
    """

    title: str
    description: str
    unit: str
    queries: dict[str, str]
    is_stat: bool = False
    stacked: bool = False
    steps: tuple[float, float] | None = None
    low_is_bad: bool = False


@dataclass(frozen=True)
class Section:
    """A row of panels under a question."""

    question: str
    graphs: list[Graph] = field(default_factory=list)


def rate(metric: str, labels: str = "") -> str:
    """The rate of a counter of the servers chosen."""
    selector = f"{SERVERS}, {labels}" if labels else SERVERS
    return f"rate({metric}{{{selector}}}[$__rate_interval])"


def moved(direction: str, method: str) -> str:
    """The bytes that one method receives or sends each second."""
    labels = f'method="{method}"'
    return f"sum({rate(f'kvcompress_{direction}_bytes_total', labels)})"


def quantile(share: float, histogram: str, by: str, labels: str = "") -> str:
    """A quantile of a histogram, by a label."""
    buckets = rate(f"{histogram}_bucket", labels)
    return f"histogram_quantile({share}, sum by (le, {by}) ({buckets}))"


def mean(histogram: str, by: str) -> str:
    """The mean of a histogram's observations, by a label."""
    return (
        f"sum by ({by}) ({rate(f'{histogram}_sum')}) / sum by ({by}) ({rate(f'{histogram}_count')})"
    )


CODEC_SECONDS = rate("kvcompress_codec_seconds_sum")
SECTIONS = [
    Section(
        "Is it up?",
        [
            Graph(
                "Servers up",
                "Servers that answered the last scrape.",
                "none",
                {"up": f"sum(up{{{SERVERS}}})"},
                is_stat=True,
                steps=(1, 2),
                low_is_bad=True,
            ),
            Graph(
                "Calls",
                "Calls received each second.",
                "reqps",
                {"calls": f"sum({rate('kvcompress_requests_total')})"},
                is_stat=True,
            ),
            Graph(
                "Failed for reasons of ours, 5 minutes",
                "The objective is 0.1 %. Codes: " + BAD_CODES.replace("|", ", ") + ".",
                "percentunit",
                {"failed": 'kvcompress:errors:ratio_rate5m{job="$job"}'},
                is_stat=True,
                steps=(0.001, 0.0144),
            ),
            Graph(
                "Error budget left, 3 days",
                "What is left of the 0.1 % of calls that may fail; below 0 it is missed.",
                "percentunit",
                {"left": '1 - kvcompress:errors:ratio_rate3d{job="$job"} / 0.001'},
                is_stat=True,
                steps=(0.0, 0.25),
                low_is_bad=True,
            ),
            Graph(
                "Damaged artefacts, 1 hour",
                "Artefacts that failed a check. Not one is normal.",
                "none",
                {"damaged": f"sum(increase(kvcompress_integrity_failures_total{{{SERVERS}}}[1h]))"},
                is_stat=True,
                steps=(0.5, 1),
            ),
            Graph(
                "Certificate expires in",
                "Of the certificate in use that expires first. Empty without TLS.",
                "s",
                {
                    "expiry": "min((kvcompress_tls_certificate_expiry_timestamp_seconds"
                    f"{{{SERVERS}}} > 0) - time())"
                },
                is_stat=True,
                steps=(86400, 7 * 86400),
                low_is_bad=True,
            ),
            Graph(
                "Calls by method",
                "Calls received each second.",
                "reqps",
                {"{{method}}": f"sum by (method) ({rate('kvcompress_requests_total')})"},
            ),
            Graph(
                "Calls that failed",
                "By code. INVALID_ARGUMENT and the like are the clients' own.",
                "reqps",
                {
                    "{{code}}": f"sum by (code) ({rate('kvcompress_errors_total')}) > 0",
                    "all": f"sum({rate('kvcompress_errors_total')})",
                },
            ),
            Graph(
                "Load of each server",
                "Calls started each second: even where clients spread them.",
                "reqps",
                {"{{instance}}": f"sum by (instance) ({rate('kvcompress_requests_total')})"},
            ),
        ],
    ),
    Section(
        "Is quality held?",
        [
            Graph(
                "Quality levels",
                "Caches each second by the level they reached.",
                "ops",
                {"{{level}}": f"sum by (level) ({rate('kvcompress_quality_total')})"},
                stacked=True,
            ),
            Graph(
                "Caches of the level POOR",
                "By codec, each second: below the bounds of ACCEPTABLE.",
                "ops",
                {
                    "{{codec}}": "sum by (codec) ("
                    + rate("kvcompress_quality_total", 'level="POOR"')
                    + ")"
                },
            ),
            Graph(
                "SNR, the median of caches",
                "Pooled over each cache. The usual bound is 18 dB.",
                "dB",
                {"{{codec}}": quantile(0.5, "kvcompress_snr_decibels", "codec")},
            ),
            Graph(
                "SNR of keys, centred, the worst of twenty caches",
                "Without the mean of each channel, which flatters ruined keys.",
                "dB",
                {"{{codec}}": quantile(0.05, "kvcompress_centred_snr_decibels", "codec")},
            ),
            Graph(
                "Caches at 18 dB or below",
                "By codec. The objective of 1 % is about auto, int8 and lossless.",
                "percentunit",
                {
                    "{{codec}}": "sum by (codec) ("
                    + rate("kvcompress_snr_decibels_bucket", 'le="18"')
                    + f") / (sum by (codec) ({rate('kvcompress_compression_ratio_count')}) > 0)"
                },
            ),
            Graph(
                "Worst tensor, SNR of one cache in ten",
                "The signal-to-noise ratio that one cache in ten stays below in its worst tensor.",
                "dB",
                {"{{codec}}": quantile(0.1, "kvcompress_worst_tensor_snr_decibels", "codec")},
            ),
            Graph(
                "Caches outside their thresholds",
                "By codec: the share in which a tensor misses a threshold of its request.",
                "percentunit",
                {"{{codec}}": 'kvcompress:verdicts_failed:ratio_rate5m{job="$job"}'},
            ),
            Graph(
                "Warnings in reports",
                "By code: clients whose caches lack roles, or have another layout than declared.",
                "ops",
                {"{{code}}": f"sum by (code) ({rate('kvcompress_warnings_total')})"},
            ),
            Graph(
                "Artefacts that failed a check",
                "By reason: damaged, cut short, or of another identity than expected.",
                "ops",
                {"{{reason}}": f"sum by (reason) ({rate('kvcompress_integrity_failures_total')})"},
            ),
        ],
    ),
    Section(
        "How much is saved?",
        [
            Graph(
                "Compression ratio",
                "Mean of the caches of each codec, against 16 bits for each value.",
                "x",
                {"{{codec}}": mean("kvcompress_compression_ratio", "codec")},
            ),
            Graph(
                "Bytes saved",
                "By codec: bytes of the tensors less those of the artefacts, each second.",
                "Bps",
                {"{{codec}}": f"sum by (codec) ({rate('kvcompress_saved_bytes_total')})"},
                stacked=True,
            ),
            Graph(
                "Bytes in and out",
                "Compress takes caches and gives artefacts; Decompress the other way round.",
                "Bps",
                {
                    f"{method} {direction}": moved(f"{direction}put", method)
                    for method in ("Compress", "Decompress")
                    for direction in ("in", "out")
                },
            ),
        ],
    ),
    Section(
        "Where is the time going?",
        [
            Graph(
                "Duration of calls",
                "From start to end, with the waiting for clients: the median, and 99 of 100 calls.",
                "s",
                {
                    "{{method}} p50": quantile(
                        0.5, "kvcompress_request_duration_seconds", "method"
                    ),
                    "{{method}} p99": quantile(
                        0.99, "kvcompress_request_duration_seconds", "method"
                    ),
                },
            ),
            Graph(
                "Time in codecs",
                "Seconds that calls spend in codecs each second, with the waiting for a core.",
                "none",
                {"{{codec}} {{stage}}": f"sum by (codec, stage) ({CODEC_SECONDS}) > 0"},
                stacked=True,
            ),
            Graph(
                "Share of the time of calls that codecs take",
                "The rest is waiting for clients and for the network.",
                "percentunit",
                {
                    "codecs": f"sum({CODEC_SECONDS}) / "
                    f"sum({rate('kvcompress_request_duration_seconds_sum')})"
                },
            ),
        ],
    ),
    Section(
        "How full is it?",
        [
            Graph(
                "Memory budget in use",
                "What streams have reserved of the budget. At 100 % calls are rejected.",
                "percentunit",
                {"{{instance}}": 'kvcompress:inflight:ratio{job="$job", instance=~"$instance"}'},
            ),
            Graph(
                "Calls rejected",
                "budget: retry later; limit: never fits; draining: the server stops.",
                "reqps",
                {"{{reason}}": f"sum by (reason) ({rate('kvcompress_requests_rejected_total')})"},
            ),
            Graph(
                "Running calls",
                "Started and not ended. A number that only grows: clients hold streams open.",
                "none",
                {
                    "{{instance}}": f"sum by (instance) (grpc_server_started_total{{{SERVERS}}}) - "
                    f"sum by (instance) (grpc_server_handled_total{{{SERVERS}}})"
                },
            ),
            Graph(
                "Cores in use",
                "CPU seconds each second.",
                "none",
                {"{{instance}}": rate("process_cpu_seconds_total")},
            ),
            Graph(
                "Resident memory",
                "Of the process; gRPC's buffers come on top of the budget.",
                "bytes",
                {"{{instance}}": f"process_resident_memory_bytes{{{SERVERS}}}"},
            ),
            Graph(
                "Versions",
                "Servers of each version: two only while a rollout is under way.",
                "none",
                {"{{version}}": f"count by (version) (kvcompress_build_info{{{SERVERS}}})"},
            ),
        ],
    ),
    Section(
        "Is the store of artefacts large enough?",
        [
            Graph(
                "Bytes held, and capacity",
                "Of each folder, as its engines or the command of the store report it.",
                "bytes",
                {
                    "{{instance}} {{folder}}": "kvcompress:store:bytes",
                    "{{instance}} {{folder}} capacity": "kvcompress:store:capacity_bytes",
                },
            ),
            Graph(
                "Tokens found",
                "Of those that vLLM looked for outside of its own cache, host memory included.",
                "percentunit",
                {"{{instance}}": "kvcompress:store:hits:ratio_rate5m"},
            ),
            Graph(
                "Evictions",
                "Artefacts each second, by reason.",
                "ops",
                {"{{reason}}": "sum by (reason) (kvcompress:store:evictions:rate5m)"},
                stacked=True,
            ),
            Graph(
                "Evicted before anybody had read them",
                "Of the artefacts evicted for the capacity within an hour. High: raise it.",
                "percentunit",
                {
                    "{{instance}} {{folder}}": "kvcompress:store:evicted_unread:increase1h / "
                    "kvcompress:store:evictions:increase1h"
                },
            ),
        ],
    ),
]


def thresholds(bounds: tuple[float, float], low_is_bad: bool) -> dashboard.ThresholdsConfig:
    """Colours of a number, which change at two bounds."""
    colours = ("red", "orange", "green") if low_is_bad else ("green", "orange", "red")
    values = (None, *bounds)
    steps = [Threshold(value=v, color=c) for v, c in zip(values, colours, strict=True)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def panel(graph: Graph) -> stat.Panel | timeseries.Panel:
    """A panel of Grafana."""
    built: stat.Panel | timeseries.Panel
    if graph.is_stat:
        built = stat.Panel().span(STAT_WIDTH).height(STAT_HEIGHT)
        if graph.steps is None:
            built = built.color_mode(BigValueColorMode.NONE)
        else:
            built = built.thresholds(thresholds(graph.steps, graph.low_is_bad))
            built = built.color_mode(BigValueColorMode.VALUE)
    else:
        built = timeseries.Panel().span(GRAPH_WIDTH).height(GRAPH_HEIGHT).min(0)
        if graph.stacked:
            built = built.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
            built = built.fill_opacity(60).draw_style(GraphDrawStyle.LINE)
    built = built.title(graph.title).description(graph.description).unit(graph.unit)
    built = built.datasource(DATA_SOURCE)
    for i, (legend, expr) in enumerate(graph.queries.items()):
        query = prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(chr(ord("A") + i))
        built = built.with_target(query.datasource(DATA_SOURCE))
    return built


def build() -> Dashboard:
    """The dashboard of Grafana."""
    board = (
        dashboard.Dashboard("KV Compress")
        .uid("kvcompress")
        .description("Servers of KV Compress: up, quality, savings, time, memory.")
        .tags(["kvcompress"])
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    for name, query, several in (
        ("job", "label_values(kvcompress_build_info, job)", False),
        ("instance", 'label_values(kvcompress_build_info{job="$job"}, instance)', True),
    ):
        variable = dashboard.QueryVariable(name).label(name.capitalize()).query(query)
        variable = variable.datasource(DATA_SOURCE).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        board = board.with_variable(variable.multi(several).include_all(several))
    for section in SECTIONS:
        board = board.with_row(dashboard.Row(section.question))
        for graph in section.graphs:
            board = board.with_panel(panel(graph))
    return board.build()
