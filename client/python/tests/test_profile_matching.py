# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The profile of a model is found by shape, rotary embedding and name."""

import json
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvcompress import ProfileInfo, ServerInfo
from kvcompress.profiles import for_model, read_profile

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "rope_theta": 10000.0,
    "_name_or_path": "makers/Tiny-Llama",
}
PAIRS = 4


def turns(theta: float, factors: Sequence[float] = (1,) * PAIRS) -> list[float]:
    """Of each pair, a token."""
    angles = [theta ** (-pair / PAIRS) for pair in range(PAIRS)]
    return [angle * factor / (2 * math.pi) for angle, factor in zip(angles, factors, strict=True)]


def write(
    path: Path,
    label: str = "tiny llama",
    *,
    rotations: Sequence[Sequence[float]] | None = None,
    layers: Sequence[str] = ("0", "0"),
    shape: str = "2x8",
    kinds: str = "halves",
    presets: str = "ultra=2.5",
) -> str:
    """Writes a profile without a basis, with the rotations of `layers`. Returns the digest."""
    rotations = [turns(10000)] if rotations is None else rotations
    members = [
        f"k{layer}:{shape}:{rotation},v{layer}:{shape}:-" for layer, rotation in enumerate(layers)
    ]
    prefix = "kvcompress.profile"
    header: dict[str, Any] = {
        "__metadata__": {
            prefix: "1",
            f"{prefix}.label": label,
            f"{prefix}.training": "none",
            f"{prefix}.presets": presets,
            f"{prefix}.rotations": ",".join([kinds] * len(rotations)),
            f"{prefix}.groups": ";".join(members),
        }
    }
    data = b""
    for i, rotation in enumerate(rotations):
        raw = struct.pack(f"<{len(rotation)}Q", *(round(turn * 2**64) for turn in rotation))
        offsets = [len(data), len(data) + len(raw)]
        header[f"rotation.{i}"] = {"dtype": "U64", "shape": [PAIRS], "data_offsets": offsets}
        data += raw
    for i in range(len(members)):
        empty = {"dtype": "I16", "shape": [1, 32], "data_offsets": [len(data)] * 2}
        header[f"group.{i}.decode"] = empty
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return read_profile(path).digest


def test_by_shape_and_rotation(tmp_path: Path) -> None:
    """Whatever it is called, if it is the only one."""
    digest = write(tmp_path / "right.profile", label="another name")
    write(tmp_path / "channels.profile", shape="2x16")
    write(tmp_path / "layers.profile", layers=["0", "0", "0"])
    write(tmp_path / "base.profile", rotations=[turns(20000)])
    write(tmp_path / "none.profile", layers=["0", "-"])
    write(tmp_path / "text.txt")
    assert for_model(CONFIG, tmp_path) == digest
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert for_model(path, str(tmp_path)) == digest
    with pytest.raises(LookupError) as caught:
        for_model({**CONFIG, "num_key_value_heads": 4}, tmp_path)
    for words in (
        "channels.profile: k0 has 2 heads x 16 channels, the model 4 x 8",
        "layers.profile: it has 3 layers, the model 2",
    ):
        assert words in str(caught.value)
    with pytest.raises(LookupError, match=r"right\.profile: another rotary embedding in layer 0"):
        for_model({**CONFIG, "rope_theta": 5e5}, tmp_path)


def test_files_of_others_among_profiles(tmp_path: Path) -> None:
    """FIFOs, links to nothing, sparse files and damage are named, and end nothing."""
    (tmp_path / "data").mkdir()
    digest = write(tmp_path / "data" / "right.profile")
    (tmp_path / "right.profile").symlink_to("data/right.profile")
    os.mkfifo(tmp_path / "a.profile")
    (tmp_path / "b.profile").symlink_to("nothing")
    (tmp_path / "c.profile").symlink_to("/dev/zero")
    (tmp_path / "d.profile").touch()
    os.truncate(tmp_path / "d.profile", 1 << 40)
    deep = b"[" * 200_000
    for name, text in (
        ("e", deep),
        ("f", b'{"__metadata__":[]}'),
        ("g", b'{"__metadata__":{"a":1}}'),
    ):
        (tmp_path / f"{name}.profile").write_bytes(struct.pack("<Q", len(text)) + text)
    write(tmp_path / "h.profile")
    damaged = (tmp_path / "h.profile").read_bytes().replace(b"[0, 32]", b"[0,1e9]", 1)
    (tmp_path / "h.profile").write_bytes(damaged)
    assert for_model(CONFIG, tmp_path) == digest
    with pytest.raises(LookupError) as caught:
        for_model(CONFIG, tmp_path, label="another")
    for name in "abcdefgh":
        assert f"{name}.profile: " in str(caught.value)


def test_a_model_and_its_configuration(tmp_path: Path) -> None:
    """As transformers has them."""
    digest = write(tmp_path / "right.profile")
    fields = {key: value for key, value in CONFIG.items() if not key.startswith("_")}
    config = SimpleNamespace(to_dict=lambda: fields, _name_or_path="makers/Tiny-Llama")
    assert for_model(config, tmp_path, label="Tiny_Llama") == digest
    assert for_model(SimpleNamespace(config=config), tmp_path) == digest
    with pytest.raises(ValueError, match="int is no model"):
        for_model(5, tmp_path)


def test_the_name_decides(tmp_path: Path) -> None:
    own = write(tmp_path / "a.profile", label="Tiny-Llama")
    other = write(tmp_path / "b.profile", label="Tiny-Llama-Chat")
    assert for_model(CONFIG, tmp_path) == own
    assert for_model(CONFIG, tmp_path, label="tiny llama chat") == other
    with pytest.raises(LookupError, match=r"a\.profile: its label is Tiny-Llama"):
        for_model(CONFIG, tmp_path, label="another")
    unnamed = {**CONFIG, "_name_or_path": ""}
    with pytest.raises(LookupError, match=r"several profiles fit .*a\.profile \(Tiny-Llama\), b"):
        for_model(unnamed, tmp_path)


def test_the_preset_decides(tmp_path: Path) -> None:
    """Of two profiles with the name of the model, as that of contract is one of its own."""
    (tmp_path / "b").mkdir()
    ultra = write(tmp_path / "a.profile")
    contract = write(tmp_path / "b.profile", presets="contract=1")
    assert for_model(CONFIG, tmp_path, preset="ultra") == ultra
    assert for_model(CONFIG, tmp_path, preset="contract") == contract
    with pytest.raises(LookupError, match="name one by its label, or a preset"):
        for_model(CONFIG, tmp_path)
    with pytest.raises(LookupError, match="it has the presets ultra, and not high"):
        for_model(CONFIG, tmp_path, preset="high")


def test_layers_of_two_kinds_and_scaled_rotations(tmp_path: Path) -> None:
    """As transformers scales them."""
    kinds = ["sliding_attention", "full_attention"]
    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    config = {**CONFIG, "layer_types": kinds, "rope_parameters": parameters}
    rotations = [turns(1e6, [1 / 8] * PAIRS), turns(10000)]
    digest = write(tmp_path / "two.profile", rotations=rotations, layers=["1", "0"])
    assert for_model(config, tmp_path) == digest
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 1024,
    }
    # Turns within 1,024 tokens: 163, 16.3, 1.63 and 0.163; from 4 on all is kept, below 1 none.
    part = (1024 * turns(10000)[2] - 1) / 3
    llama3 = [1, 1, part + (1 - part) / 8, 1 / 8]
    digest = write(tmp_path / "llama3.profile", rotations=[turns(10000, llama3)])
    assert for_model({**CONFIG, "rope_scaling": scaling}, tmp_path) == digest
    # From 32 on all is kept, below 1 none, and between by pairs.
    low, high = math.floor(PAIRS * math.log(163 / 32) / math.log(1e4)), math.ceil(2.2)
    yarn = [1 - (1 - 1 / 8) * min(max((p - low) / (high - low), 0), 1) for p in range(PAIRS)]
    digest = write(tmp_path / "yarn.profile", rotations=[turns(10000, yarn)])
    assert for_model({**CONFIG, "rope_scaling": {**scaling, "rope_type": "yarn"}}, tmp_path) == (
        digest
    )


def test_neighbouring_channels(tmp_path: Path) -> None:
    config = {**CONFIG, "model_type": "cohere"}
    write(tmp_path / "halves.profile")
    with pytest.raises(LookupError, match="another rotary embedding"):
        for_model(config, tmp_path)
    digest = write(tmp_path / "right.profile", kinds="interleaved")
    assert for_model(config, tmp_path) == digest


def test_what_is_no_profile(tmp_path: Path) -> None:
    """It is passed over, and named when nothing else fits."""
    (tmp_path / "a.profile").write_bytes(b"x")
    (tmp_path / "b.profile").write_bytes(struct.pack("<Q", 2) + b"{}")
    with pytest.raises(LookupError, match=r"a\.profile is not a profile.*b\.profile is no profile"):
        for_model(CONFIG, tmp_path)
    digest = write(tmp_path / "c.profile")
    assert for_model(CONFIG, tmp_path) == digest
    with pytest.raises(LookupError, match="fits the model: there are none"):
        for_model(CONFIG, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="it has no num_hidden_layers"):
        for_model({"model_type": "llama", "rope_theta": 1e4}, tmp_path)


def test_the_bound_of_a_header_is_that_of_the_service(tmp_path: Path) -> None:
    """100 MB, not MiB: a longer one is refused before it is read."""
    path = tmp_path / "a.profile"
    for size, message in (
        (100_000_001, "it has no safetensors header"),
        (100_000_000, "Expecting"),
    ):
        path.write_bytes(struct.pack("<Q", size) + b"x")
        with pytest.raises(ValueError, match=f"is not a profile: {message}"):
            read_profile(path)


class Server:
    """A client of a server with such profiles."""

    def __init__(self, *labels: str) -> None:
        """Takes their labels."""
        self.profiles = [
            ProfileInfo(f"file{i}", f"sha256:{i}", label, 1, 4, 100, ("ultra",), "")
            for i, label in enumerate(labels)
        ]

    def server_info(self) -> ServerInfo:
        """Returns what there is."""
        return cast("ServerInfo", self)


def test_on_a_server() -> None:
    """Which reports no shapes."""
    assert for_model(CONFIG, Server("other", "tiny-llama")) == "sha256:1"
    assert for_model(CONFIG, Server("other", "makers/tiny-llama")) == "sha256:1"
    assert for_model(CONFIG, Server("other", "tiny-llama"), label="Other") == "sha256:0"
    with pytest.raises(LookupError, match=r"no profile of .*tiny-llama; it has other \(file0\)"):
        for_model(CONFIG, Server("other"))
    with pytest.raises(LookupError, match="several profiles of"):
        for_model(CONFIG, Server("tiny-llama", "Tiny Llama"))
    assert for_model(CONFIG, Server("tiny-llama"), preset="ultra") == "sha256:0"
    with pytest.raises(LookupError, match="tiny-llama with the preset contract; it has"):
        for_model(CONFIG, Server("tiny-llama"), preset="contract")
