# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What a call may be asked for, as keyword arguments that both clients share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict, Unpack, cast, get_args

from google.protobuf.message import Message

from kvcompress._fields import filled
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
        block_tokens: Tokens of a block of what is coded with a profile, 16 to 256. Shorter blocks
            are restored faster on a GPU, and take more bytes. Default 256.
        metrics: What is measured: `full`, the default, or `basic`, which leaves out what needs
            tokens (`centred_snr_db`, `token_snr_db_p1`, `first_token_rmse`) and takes less time.
        attention: For layers, by index: for each token log2 of the attention that it is likely
            to get, above any level common to all; finite, from -64 to 64. For presets of `klt`
            that weigh tokens (`high`, `max`, `ultra`), instead of their own guess.
        labels: Labels to bind to the artefact, at most 32.
        report_tensors: Whether the report lists every tensor. Default True.
        profile: The profile of the server to compress with, by name, digest or label, as
            `server_info().profiles` lists them; with the codec `klt` and a preset of the
            profile, such as `klt:ultra`, or with `lossless`. What is compressed with a profile can
            be restored with that profile alone. `none`: none. Default, with `klt`: the one profile
            whose label is that of the label `model`, and that fits the cache; none without that
            label.
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
    block_tokens: int
    metrics: MetricsLevel
    attention: Mapping[int, Iterable[float]] | None
    labels: Mapping[str, str] | None
    report_tensors: bool
    profile: str


class RestoreArguments(TypedDict, total=False):
    """Keyword arguments of `decompress` where it returns something.

    What is left out takes the default.

    Attributes:
        tensors: Shell patterns: only tensors that match one are given back. The others are
            verified all the same. At most 1024, and fewer for very many names, as the API
            says; one that matches none is an error, unless there is no tensor. Default: all.
        tokens: Half-open range of tokens to return, of tensors
            [batch, heads, tokens, head_dim]. Default: all.
        order: In which order tensors come, in the file too: "file", that of the source, or
            "layers": layer by layer, keys before values. Default: "file".
        expected_labels: Labels that the artefact must carry with these values.
        expected_payload_digest: The `payload_digest` that the artefact must have.
    """

    tensors: Sequence[str]
    tokens: tuple[int, int] | None
    order: TensorOrder | None
    expected_labels: Mapping[str, str] | None
    expected_payload_digest: str


class DecompressArguments(RestoreArguments, total=False):
    """Keyword arguments of `decompress`: those of RestoreArguments, and one more.

    Attributes:
        verify_only: Whether to check only; nothing is written or given back.
    """

    verify_only: bool


def codec_string(codec: CodecChoice) -> str:
    """Returns the codec string for a mapping of its fields; a string stays as it is.

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


def compress_options(**options: Unpack[CompressArguments]) -> service_pb2.CompressOptions:
    """Returns the message of the API for CompressArguments.

    An argument that has the name and the type of a field is taken as it is; only others are
    converted here.

    Raises:
        TypeError: An argument has another type, or a name that there is not.
        ValueError: The mapping of a codec has no name, there is no such effort, level or role, or
            a number is out of range.
    """
    check_names(options, "options", tuple(CompressArguments.__annotations__))
    codec, config = options.get("codec"), options.get("model_config")
    key_patterns, value_patterns = _patterns(options.get("roles"))
    listed = options.get("report_tensors")
    values = _fields_of(service_pb2.CompressOptions, options)
    values |= {
        "codec": None if codec is None else codec_string(codec),
        "thresholds": _bounds(
            with_shorthands(options.get("thresholds"), _shorthands(options)), "thresholds"
        ),
        "key_thresholds": _bounds(options.get("key_thresholds"), "key_thresholds"),
        "value_thresholds": _bounds(options.get("value_thresholds"), "value_thresholds"),
        "key_patterns": key_patterns,
        "value_patterns": value_patterns,
        "rope": None if config is None else rope_parameters(config),
        "attention": _attention(options.get("attention")),
        "report_tensors": True if listed is None else listed,
    }
    return filled(service_pb2.CompressOptions, values)


def decompress_options(
    **options: Unpack[DecompressArguments],
) -> service_pb2.DecompressOptions:
    """Returns the message of the API for DecompressArguments.

    Raises:
        TypeError: An argument has another type, or a name that there is not.
        ValueError: A token's index is negative, or there is no such order.
    """
    check_names(options, "options", tuple(DecompressArguments.__annotations__))
    if isinstance(options.get("tensors"), str):
        raise TypeError("tensors is a sequence of patterns, not one string")
    values = _fields_of(service_pb2.DecompressOptions, options)
    tokens = options.get("tokens")
    if tokens is not None:
        begin, end = tokens
        if begin is None or end is None:
            raise TypeError("tokens is two indices, such as (0, 512), and neither is None")
        values["tokens"] = filled(service_pb2.TokenRange, {"begin": begin, "end": end}, "tokens")
    return filled(service_pb2.DecompressOptions, values)


def _fields_of(kind: type[Message], options: Mapping[str, object]) -> dict[str, object]:
    """Returns the arguments that are called like fields of a message."""
    return {name: options[name] for name in options if name in kind.DESCRIPTOR.fields_by_name}


def _shorthands(options: CompressArguments) -> ThresholdArguments:
    """Returns the bounds that are arguments themselves."""
    names = ThresholdArguments.__annotations__
    given = {name: value for name, value in options.items() if name in names}
    return cast(ThresholdArguments, given)


def _bounds(given: ThresholdsChoice | None, argument: str) -> quality_pb2.QualityThresholds | None:
    """Returns the message of the API for an argument of bounds."""
    limits = as_thresholds(given, argument)
    return None if limits is None else limits.to_proto()


def _patterns(roles: Mapping[str, Role] | None) -> tuple[list[str], list[str]]:
    """Returns the patterns of keys and those of values.

    Raises:
        TypeError: It is no mapping.
        ValueError: There is no such role.
    """
    if roles is not None and not isinstance(roles, Mapping):
        raise TypeError(f"roles is a mapping of patterns to roles, not {type(roles).__name__}")
    patterns: dict[object, list[str]] = {role: [] for role in get_args(Role)}
    for pattern, role in (roles or {}).items():
        if role not in patterns:
            raise ValueError(f"a role is key or value, not {role!r}")
        patterns[role].append(pattern)
    return patterns["key"], patterns["value"]


def _attention(
    given: Mapping[int, Iterable[float]] | None,
) -> list[service_pb2.LayerAttention]:
    """Returns the messages of the API for the attention of layers."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"attention is a mapping of layers to numbers, not {type(given).__name__}")
    return [
        filled(service_pb2.LayerAttention, {"layer": layer, "octaves": octaves}, "attention")
        for layer, octaves in (given or {}).items()
    ]
