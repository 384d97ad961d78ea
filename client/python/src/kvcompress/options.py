# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a call may be asked for, as keyword arguments that both clients share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict, TypeVar, Unpack, get_args

from kvcompress._model_config import ModelConfig, rope_parameters
from kvcompress._thresholds import (
    ThresholdsChoice,
    as_thresholds,
    check_names,
    with_shorthands,
)
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1 import quality_pb2
from kvcompress.v1.quality_types import ThresholdArguments

Effort = Literal["fast", "balanced", "best"]
MetricsLevel = Literal["basic", "full"]
TensorOrder = Literal["file", "layers"]
_Value = TypeVar("_Value")
EFFORTS: Mapping[str, service_pb2.Effort.ValueType] = {
    "fast": service_pb2.EFFORT_FAST,
    "balanced": service_pb2.EFFORT_BALANCED,
    "best": service_pb2.EFFORT_BEST,
}
METRICS_LEVELS: Mapping[str, service_pb2.MetricsLevel.ValueType] = {
    "basic": service_pb2.METRICS_LEVEL_BASIC,
    "full": service_pb2.METRICS_LEVEL_FULL,
}
TENSOR_ORDERS: Mapping[str, service_pb2.TensorOrder.ValueType] = {
    "file": service_pb2.TENSOR_ORDER_FILE,
    "layers": service_pb2.TENSOR_ORDER_LAYERS,
}


CodecChoice = str | Mapping[str, str | float | bool | None]
"""A codec string, or a mapping of its fields; see `codec_string`."""


Role = Literal["key", "value"]


class CompressArguments(ThresholdArguments, total=False):
    """Keyword arguments of `compress` and `measure`. What is left out takes the default.

    Which codecs, options of theirs and byte compressors there are is what `server_info` lists.
    Bounds can be arguments themselves: `min_snr_db=30` is `thresholds={"min_snr_db": 30}`. Of
    bounds that are given `compress` makes sure (see `Client.compress`); those that are not take
    the server's defaults, which the verdict counts and nothing enforces.

    Attributes:
        codec: A codec string, `NAME[:PARAMETERS][+BYTE_COMPRESSOR]`, such as `klt:ultra` or
            `int4:64+zstd`, or a mapping of the same fields; see `codec_string`.
            Default `auto`, which holds the bounds.
        thresholds: Bounds for the verdict: a `kvcompress.Thresholds`, or a mapping with the names
            of its fields. Default: the server's.
        key_thresholds: Bounds for keys, where they differ from `thresholds`.
        value_thresholds: Bounds for values, where they differ from `thresholds`.
        roles: By shell pattern what tensors with such names hold, `key` or `value`, such as
            `{"*.0": "key", "*.1": "value"}`; before what names say by themselves ("Roles" in
            core/FORMAT.md). At most 1024 patterns of each; one that matches no tensor is an
            error, and so is a tensor that is said to be both. Default: from names.
        rope_theta: Base of the rotary position embedding that the keys carry, such as 10000;
            0 when they carry none. Default: the metadata key `rope_theta` of the input, else
            found out. For codecs that undo the rotation.
        model_config: The path of the model's config.json (Hugging Face), or what is in it as a
            mapping. The rotary embedding of the keys is taken from it: base, pairs, rotated
            part, scaling, layer by layer. Not together with `rope_theta`.
        layout: What the dimensions of the tensors are, where they are not
            [batch, heads, tokens, head_dim]: a name, such as `thd`, `td:heads=8` or `paged`, or a
            notation, such as `2pshd` (core/FORMAT.md, "Layouts"). Default: the metadata key
            `layout` of the input, else `bhtd`.
        effort: How long the encoder may try to make less of it at the same quality: `fast`,
            `balanced` or `best`. Default `balanced`, and `fast` where no codec is given.
        metrics: What is measured: `full`, the default, or `basic`, which leaves out what needs
            tokens (`centred_snr_db`, `token_snr_db_p1`, `first_token_rmse`) and takes less time.
        attention: For layers, by index: for each token log2 of the attention that it is likely
            to get, above any level common to all; finite, from -64 to 64. For presets of `klt`
            that weigh tokens (`high`, `max`, `ultra`), instead of their own guess.
        labels: Labels to bind to the artefact, at most 32.
        report_tensors: Whether the report lists every tensor. Default True.
        profile: The profile of the server to compress with, by name, digest or label, as
            `server_info().profiles` lists them; with the codec `klt` and a preset of the
            profile, such as `klt:ultra`. What is compressed with a profile can be restored with
            that profile alone. `none`: none. Default: the one profile whose label is that of the
            label `model`, and that fits the cache; none without that label.
    """

    codec: CodecChoice
    thresholds: ThresholdsChoice | None
    key_thresholds: ThresholdsChoice | None
    value_thresholds: ThresholdsChoice | None
    roles: Mapping[str, Role] | None
    rope_theta: float | None
    model_config: ModelConfig | None
    layout: str
    effort: Effort
    metrics: MetricsLevel
    attention: Mapping[int, Iterable[float]] | None
    labels: Mapping[str, str] | None
    report_tensors: bool
    profile: str


class DecompressArguments(TypedDict, total=False):
    """Keyword arguments of `decompress`. What is left out takes the default.

    Attributes:
        tensors: Shell patterns: only tensors that match one are given back. The others are
            verified all the same. At most 1024, and fewer for very many names, as the API
            says; one that matches none is an error, unless there is no tensor. Default: all.
        tokens: Half-open range of tokens to give back, of tensors
            [batch, heads, tokens, head_dim]. Default: all.
        order: In which order tensors come, in the file too: "file", that of the source, or
            "layers": layer by layer, keys before values. Default: "file".
        expected_labels: Labels that the artefact must carry with these values.
        expected_payload_digest: The `payload_digest` that the artefact must have.
        verify_only: Whether to check only; nothing is written or given back.
    """

    tensors: Sequence[str]
    tokens: tuple[int, int] | None
    order: TensorOrder | None
    expected_labels: Mapping[str, str] | None
    expected_payload_digest: str
    verify_only: bool


def codec_string(codec: CodecChoice) -> str:
    """Gives the codec string for a mapping of its fields; a string stays as it is.

    The service says which there are and what they take.

    Args:
        codec: With the fields `name`, and where they are wanted `preset`, `byte_compressor`, and
            every option of the codec under its name, such as
            `{"name": "sparse", "sparsity": 0.25, "byte_compressor": "zstd"}`. None and an empty
            text are as if the field was not there.

    Examples:
        >>> codec_string({"name": "int4", "group_size": 32, "byte_compressor": "zstd"})
        'int4:group_size=32+zstd'

    Raises:
        TypeError: It is neither a string nor a mapping.
        ValueError: The mapping has no name.
    """
    if isinstance(codec, str):
        return codec
    if not isinstance(codec, Mapping):
        raise TypeError(f"codec is a string or a mapping, not {type(codec).__name__}")
    fields = {key: value for key, value in codec.items() if value is not None and value != ""}
    if "name" not in fields:
        raise ValueError("the mapping of a codec needs a name")
    name, preset = _text(fields.pop("name")), fields.pop("preset", None)
    compressor = fields.pop("byte_compressor", None)
    items = [] if preset is None else [_text(preset)]
    items += [f"{key}={_text(value)}" for key, value in fields.items()]
    return (
        name
        + (f":{','.join(items)}" if items else "")
        + ("" if compressor is None else f"+{_text(compressor)}")
    )


def _text(value: str | float | bool) -> str:
    """Writes a value as codec strings have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _one_of(
    values: Mapping[str, _Value], given: str | None, argument: str, default: _Value
) -> _Value:
    """Gives the value of that name."""
    if given is None:
        return default
    if given not in values:
        raise ValueError(f"{argument} is one of {', '.join(values)}, not {given!r}")
    return values[given]


def compress_options(
    *,
    codec: CodecChoice | None = None,
    thresholds: ThresholdsChoice | None = None,
    key_thresholds: ThresholdsChoice | None = None,
    value_thresholds: ThresholdsChoice | None = None,
    roles: Mapping[str, Role] | None = None,
    rope_theta: float | None = None,
    model_config: ModelConfig | None = None,
    layout: str = "",
    effort: Effort | None = None,
    metrics: MetricsLevel | None = None,
    attention: Mapping[int, Iterable[float]] | None = None,
    labels: Mapping[str, str] | None = None,
    report_tensors: bool = True,
    profile: str = "",
    **bounds: Unpack[ThresholdArguments],
) -> service_pb2.CompressOptions:
    """Gives the message of the API for CompressArguments.

    Raises:
        TypeError: An argument has another type, or a name that there is not.
        ValueError: The mapping of a codec has no name, or there is no such effort, level or role.
    """
    check_names(bounds, "options", tuple(CompressArguments.__annotations__))

    wrong = set((roles or {}).values()) - set(get_args(Role))
    if wrong:
        raise ValueError(f"a role is key or value, not {sorted(map(str, wrong))[0]!r}")

    def message(
        given: ThresholdsChoice | None, argument: str
    ) -> quality_pb2.QualityThresholds | None:
        limits = as_thresholds(given, argument)
        return None if limits is None else limits.to_proto()

    return service_pb2.CompressOptions(
        codec="" if codec is None else codec_string(codec),
        thresholds=message(with_shorthands(thresholds, bounds), "thresholds"),
        key_thresholds=message(key_thresholds, "key_thresholds"),
        value_thresholds=message(value_thresholds, "value_thresholds"),
        key_patterns=[pattern for pattern, role in (roles or {}).items() if role == "key"],
        value_patterns=[pattern for pattern, role in (roles or {}).items() if role == "value"],
        rope_theta=rope_theta,
        rope=None if model_config is None else rope_parameters(model_config),
        layout=layout,
        effort=_one_of(EFFORTS, effort, "effort", service_pb2.EFFORT_UNSPECIFIED),
        metrics=_one_of(METRICS_LEVELS, metrics, "metrics", service_pb2.METRICS_LEVEL_UNSPECIFIED),
        attention=[
            service_pb2.LayerAttention(layer=layer, octaves=octaves)
            for layer, octaves in (attention or {}).items()
        ],
        labels=labels,
        report_tensors=report_tensors,
        profile=profile,
    )


def decompress_options(
    *,
    tensors: Sequence[str] = (),
    tokens: tuple[int, int] | None = None,
    order: TensorOrder | None = None,
    expected_labels: Mapping[str, str] | None = None,
    expected_payload_digest: str = "",
    verify_only: bool = False,
) -> service_pb2.DecompressOptions:
    """Gives the message of the API for DecompressArguments.

    Raises:
        TypeError: An argument has another type, or a name that there is not.
        ValueError: A token's index is negative, or there is no such order.
    """
    if isinstance(tensors, str):
        raise TypeError("tensors is a sequence of patterns, not one string")
    options = service_pb2.DecompressOptions(
        expected_labels=expected_labels,
        expected_payload_digest=expected_payload_digest,
        tensors=tensors,
        order=_one_of(TENSOR_ORDERS, order, "order", service_pb2.TENSOR_ORDER_UNSPECIFIED),
        verify_only=verify_only,
    )
    if tokens is not None:
        options.tokens.begin, options.tokens.end = tokens
    return options
