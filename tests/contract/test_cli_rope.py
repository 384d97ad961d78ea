# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""-model-config and -rope say what `model_config=` does."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from kv_compress import Run, refuse, succeed

from kvcompress import Client
from kvcompress._model_config import _DEFAULTS
from oracle.fixtures import REPOSITORY, SAMPLE
from oracle.test_rope import CONFIGS, MODELS, cache


@pytest.mark.parametrize("name", MODELS)
def test_both_readers_of_a_config_agree(
    run: Run, client: Client, tmp_path: Path, name: str
) -> None:
    """That of the command line and that of the Python package."""
    source, config = tmp_path / "in", CONFIGS / f"{name}.json"
    source.write_bytes(cache(name))
    report = client.measure(source, codec="ecsq:high", model_config=config)
    (tensor,) = report.tensors
    assert tensor.rope is not None
    for arguments in (["-model-config", config], ["-rope", config.read_text()]):
        answer = succeed(
            run("-input", source, "-metrics-only", "-verbose", "-codec", "ecsq:high", *arguments)
        )
        assert answer["payload_digest"] == report.payload_digest
        assert answer["tensors"][0]["rope"] == asdict(tensor.rope)


def test_both_readers_take_the_same_for_what_is_left_out() -> None:
    """What tests/model compares with transformers."""
    text = (REPOSITORY / "client" / "cli" / "model_defaults.h").read_text()
    table = {
        name: [float(number) for number in numbers.split(",")]
        for name, numbers in re.findall(r'\{"(\w+)", ([^}]*)\}', text)
    }
    assert len(table) > 40
    assert table == {
        name: [each.theta, each.rotated, each.window_theta, each.pattern][: len(table[name])]
        for name, each in _DEFAULTS.items()
    }


def test_what_is_said_twice_or_not_at_all(run: Run) -> None:
    base = ["-input", SAMPLE, "-metrics-only"]
    refuse(run(*base, "-rope", "{}"), "says nothing of a rotary embedding")
    refuse(run(*base, "-rope", "[]"), "no JSON object")
    refuse(run(*base, "-model-config", "absent"), "cannot open absent")
    refuse(run(*base, "-rope", '{"rope_theta": 1e4}', "-rope-theta", "1e4"), "one of them")
    dynamic = '{"rope_scaling": {"type": "dynamic", "factor": 2}}'
    refuse(run(*base, "-rope", dynamic), "dynamic")
    for fields, message in (
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "it has no rope_theta"),
        ({"model_type": "gemma3_text"}, "which layers there are"),
        (
            {"layer_types": ["other"], "rope_parameters": {"some": {"rope_theta": 1e4}}},
            "layers of type other have no rope_parameters",
        ),
    ):
        refuse(run(*base, "-rope", json.dumps(fields)), message)
