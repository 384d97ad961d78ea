# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Parts that kvcompress.gpu decodes side by side: who waits for whom, and when."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from gpu_decoding import GOLDEN, assert_same, crafted, golden, language_patched_once, torch

from kvcompress import Client, FailedPreconditionError, load_torch
from kvcompress.gpu import Decoder
from kvcompress.gpu._device import on_stream
from kvcompress.gpu._lanes import LANES, Lanes
from kvcompress.payload import PayloadError

__all__ = ["language_patched_once"]
pytestmark = pytest.mark.slow


class Recorded:
    """Stands in for streams and events of a device, and for a tensor, and writes down calls."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def __getattr__(self, call: str) -> Any:  # noqa: ANN401
        def record(*arguments: "Recorded") -> None:
            self.log.append(" ".join([self.name, call, *(each.name for each in arguments)]))

        return record


class Current:
    """A context with another current stream."""

    def __init__(self, device: "Device", stream: Recorded) -> None:
        self.device, self.stream = device, stream

    def __enter__(self) -> None:
        self.before, self.device.current = self.device.current, self.stream

    def __exit__(self, *_: object) -> None:
        self.device.current = self.before


class Device:
    """What is used of torch.cuda."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = Recorded(self.log, "caller")
        self.made = 0

    def Stream(self, _: object) -> Recorded:  # noqa: N802
        self.made += 1
        return Recorded(self.log, f"lane{self.made - 1}")

    def Event(self) -> Recorded:  # noqa: N802
        return Recorded(self.log, f"event of {self.current.name}")

    def current_stream(self, _: object) -> Recorded:
        return self.current

    def stream(self, stream: Recorded) -> Current:
        return Current(self, stream)


def test_parts_wait_for_the_caller_and_nobody_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(torch, "cuda", device)
    lanes = Lanes(torch.device("cuda:0"))
    tensor: Any = Recorded(device.log, "tensor")
    events = [
        lanes.launch(lambda: device.log.append(f"kernels in {device.current.name}"), [tensor])
        for _ in range(LANES + 1)
    ]
    assert device.log[:4] == [
        "lane0 wait_stream caller",
        "kernels in lane0",
        "event of lane0 record lane0",
        "tensor record_stream lane0",
    ]
    assert device.log[4] == "lane1 wait_stream caller"
    assert device.log[-3] == "kernels in lane0"
    assert (device.made, device.current.name) == (LANES, "caller")
    assert not any(line.startswith("caller") for line in device.log)
    lanes.wait(events[1])
    other: Any = Recorded(device.log, "other")
    lanes.wait(events[2], other)
    assert device.log[-2:] == [
        "caller wait_event event of lane1",
        "other wait_event event of lane2",
    ]


def test_flags_are_checked_later() -> None:
    group = crafted(5)
    payload = bytearray(group.payload())
    payload[len(payload) // 2] ^= 1
    decoder = Decoder(group.profile, "cpu")
    decoded = decoder.decode(group.artefact(bytes(payload)), wait=False)
    decoded.wait(["layer_0_key"])
    with pytest.raises(PayloadError):
        decoded.check()
    artefact, profile = golden("cache")
    decoded = Decoder(profile, "cpu").decode(artefact, wait=False)
    assert decoded.check() == []
    assert decoded.check() == []
    assert_same(decoded.tensors, load_torch((GOLDEN / "cache.safetensors").read_bytes()))


def test_what_was_written_again_is_told() -> None:
    group = crafted(3)
    group.quanta[0, 4] = 1 << 20
    decoded = Decoder(group.profile, "cpu").decode(group.artefact(), wait=False)
    assert set(decoded.check()) == set(decoded.tensors)


def test_layers_come_in_the_order_in_which_they_are_wanted(client: Client) -> None:
    rng = np.random.default_rng(0)
    source = {
        f"layer_{layer}_{role}": rng.standard_normal((1, 2, 9, 8)).astype(np.float16)
        for layer in range(3)
        for role in ("key", "value")
    }
    artefact = client.compress(source, codec="int8:32").artefact or b""
    decoder = Decoder(device="cpu")
    names = [f"layer_{layer}_{role}" for layer in (2, 0) for role in ("value", "key")]
    decoded = decoder.decode(artefact, tensors=names, wait=False, by_layer=True)
    assert [part.names for part in decoded._launched] == [names[:2], names[2:]]
    assert decoded.check() == []
    expected = client.decompress(artefact).torch_tensors()
    assert_same(decoded.tensors, {name: expected[name] for name in source if name in names})
    assert decoder.scratch_bytes(artefact, by_layer=True) > 0


@pytest.mark.parametrize("records", [True, False])
def test_a_call_while_a_graph_is_recorded(
    monkeypatch: pytest.MonkeyPatch, *, records: bool
) -> None:
    """What the host does in the call would not be in the graph."""
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: records)
    refused = pytest.raises(FailedPreconditionError, match="CUDA graph")
    with refused if records else nullcontext(), on_stream(torch.device("cuda"), None):
        pass
