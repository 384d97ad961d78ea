# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Arguments of calls become messages of the API, by the definitions of the API."""

from typing import Any, get_args

import pytest

from kvcompress import options
from kvcompress._fields import enum_numbers
from kvcompress.options import (
    CompressArguments,
    DecompressArguments,
    compress_options,
    decompress_options,
)
from kvcompress.v1 import compression_service_pb2 as service_pb2
from kvcompress.v1.quality_types import ThresholdArguments

# What `roles` and `model_config` become, and what an argument of `compress` alone asks for.
OTHERWISE = {"key_patterns", "value_patterns", "rope", "reconstruct"}
CONVERTED = {"roles", "model_config"}


def test_every_field_of_the_api_is_an_argument() -> None:
    """So that an option that is added to the API gets a type here, and nothing else."""
    fields = set(service_pb2.CompressOptions.DESCRIPTOR.fields_by_name)
    own = set(CompressArguments.__annotations__) - set(ThresholdArguments.__annotations__)
    assert fields - OTHERWISE == own - CONVERTED
    fields = set(service_pb2.DecompressOptions.DESCRIPTOR.fields_by_name)
    assert fields == set(DecompressArguments.__annotations__)


@pytest.mark.parametrize("kind", ["Effort", "MetricsLevel", "TensorOrder"])
def test_every_value_of_an_enumeration_has_a_name(kind: str) -> None:
    enum = service_pb2.DESCRIPTOR.enum_types_by_name[kind]
    assert tuple(enum_numbers(enum)) == get_args(getattr(options, kind))


def test_arguments_arrive() -> None:
    """Those that are taken as they are, and the values of enumerations."""
    made = compress_options(
        layout="thd",
        rope_theta=0,
        effort="best",
        block_tokens=64,
        metrics="basic",
        labels={"model": "m"},
        report_tensors=False,
        attention={3: (each / 2 for each in range(2))},
    )
    expected = service_pb2.CompressOptions(
        layout="thd",
        rope_theta=0,
        effort=service_pb2.EFFORT_BEST,
        block_tokens=64,
        metrics=service_pb2.METRICS_LEVEL_BASIC,
        labels={"model": "m"},
        attention=[service_pb2.LayerAttention(layer=3, octaves=[0, 0.5])],
    )
    assert made == expected
    assert made.HasField("rope_theta")
    restoring = decompress_options(tensors=("a*", "b"), tokens=(0, 3), order="layers")
    assert restoring == service_pb2.DecompressOptions(
        tensors=["a*", "b"],
        tokens=service_pb2.TokenRange(begin=0, end=3),
        order=service_pb2.TENSOR_ORDER_LAYERS,
    )


def test_none_is_the_default() -> None:
    names = set(CompressArguments.__annotations__) - set(ThresholdArguments.__annotations__)
    nothing: Any = dict.fromkeys(names)
    assert compress_options(**nothing) == compress_options()
    assert compress_options() == service_pb2.CompressOptions(report_tensors=True)
    nothing = dict.fromkeys(DecompressArguments.__annotations__)
    assert decompress_options(**nothing) == service_pb2.DecompressOptions()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layout": 3}, "layout is a string, not int"),
        ({"rope_theta": "x"}, "rope_theta is a number, not str"),
        ({"report_tensors": "x"}, "report_tensors is a boolean, not str"),
        ({"labels": 3}, "labels is a mapping of strings to strings, not int"),
        ({"labels": {"a": 1, "b": "c"}}, "mapping of strings to strings, not dict of str to int "),
        ({"roles": 3}, "roles is a mapping of patterns to roles, not int"),
        ({"attention": 3}, "attention is a mapping of layers to numbers, not int"),
        ({"attention": {"a": [1]}}, "layer of attention is an integer, not str"),
        ({"attention": {0: ["a"]}}, "octaves of attention is a sequence of numbers, not list of s"),
        ({"efort": "fast"}, r"options: there is no 'efort'; did you mean 'effort'\? There are"),
        ({"key_patterns": ["a"]}, "options: there is no 'key_patterns'"),
    ],
)
def test_an_argument_of_another_type_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        compress_options(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"effort": "slow"}, "effort is one of fast, balanced, best, not 'slow'"),
        ({"effort": ["fast"]}, r"effort is one of fast, balanced, best, not \['fast'\]"),
        ({"metrics": "unspecified"}, "metrics is one of basic, full, not 'unspecified'"),
        ({"attention": {-1: [1]}}, "layer of attention: .*-1"),
    ],
)
def test_a_value_that_there_is_not_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compress_options(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tensors": "a"}, "tensors is a sequence of patterns, not one string"),
        ({"tensors": [1]}, "tensors is a sequence of strings, not list of int"),
        ({"tokens": ("a", 2)}, "begin of tokens is an integer, not str"),
        ({"tokens": (0, None)}, "tokens is two indices"),
        ({"tensor": ["a"]}, r"options: there is no 'tensor'; did you mean 'tensors'\?"),
    ],
)
def test_restoring_names_a_wrong_argument(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        decompress_options(**given)
