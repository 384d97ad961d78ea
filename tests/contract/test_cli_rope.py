# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""-model-config and -rope say what `model_config=` does."""

from dataclasses import asdict
from pathlib import Path

import pytest
from kv_compress import Run, refuse, succeed

from kvcompress import Client
from oracle.fixtures import SAMPLE
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


def test_what_is_said_twice_or_not_at_all(run: Run) -> None:
    base = ["-input", SAMPLE, "-metrics-only"]
    refuse(run(*base, "-rope", "{}"), "says nothing of a rotary embedding")
    refuse(run(*base, "-rope", "[]"), "no JSON object")
    refuse(run(*base, "-model-config", "absent"), "cannot open absent")
    refuse(run(*base, "-rope", '{"rope_theta": 1e4}', "-rope-theta", "1e4"), "one of them")
    dynamic = '{"rope_scaling": {"type": "dynamic", "factor": 2}}'
    refuse(run(*base, "-rope", dynamic), "dynamic")
