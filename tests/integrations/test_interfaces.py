# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Each class of an engine that we extend, at the version that we test with, and at newer ones.

transformers counts as one. A wheel for CPUs of vLLM follows each release of it, so that the newest
version is that of `vllm`.
"""

import ast
import re

import pytest
from interfaces import REPOSITORY, Interface, Wheel, accepts, wheels

pytestmark = pytest.mark.slow

CACHES = "transformers/cache_utils.py"
CONNECTORS = "vllm/distributed/kv_transfer/kv_connector/v1"
OFFLOADING = "vllm/v1/kv_offload/base.py"
TIER = "vllm/v1/kv_offload/tiering"
INTERFACES = {
    "lmcache": (
        Interface(
            "lmcache/v1/distributed/l2_adapters/base.py",
            "L2AdapterInterface",
            "lmcache.py",
            "KVCompressAdapter",
        ),
        Interface(
            "lmcache/v1/distributed/serde/base.py",
            "Serializer",
            "lmcache_serde.py",
            "KVCompressSerializer",
        ),
        Interface(
            "lmcache/v1/distributed/serde/base.py",
            "Deserializer",
            "lmcache_serde.py",
            "KVCompressDeserializer",
        ),
    ),
    "sglang": (
        Interface(
            "sglang/srt/mem_cache/hicache_storage.py",
            "HiCacheStorage",
            "sglang.py",
            "KVCompressStorage",
        ),
    ),
    "transformers": (
        Interface(CACHES, "Cache", "transformers.py", "CompressedCache"),
        Interface(CACHES, "DynamicLayer", "_compressed_layer.py", "CompressedLayer"),
    ),
    "vllm": (
        Interface(f"{TIER}/base.py", "SecondaryTierManager", "_vllm_tier.py", "KVCompressTier"),
        Interface(f"{TIER}/async_lookup.py", "AsyncLookupManager", "_vllm_lookup.py", "Lookup"),
        Interface(f"{TIER}/spec.py", "TieringOffloadingSpec", "_vllm_host.py", "HostTieringSpec"),
        Interface(OFFLOADING, "OffloadingWorker", "_vllm_host.py", "HostWorker"),
        Interface(OFFLOADING, "OffloadingWorker", "_vllm_device_worker.py", "DeviceWorker"),
        Interface(OFFLOADING, "OffloadingManager", "_vllm_device.py", "DeviceManager"),
        Interface(OFFLOADING, "OffloadingSpec", "_vllm_device.py", "DeviceSpec"),
        Interface(
            f"{CONNECTORS}/offloading/common.py",
            "OffloadingWorkerMetadata",
            "_vllm_device.py",
            "DeviceMetadata",
        ),
        *(
            Interface(
                f"{CONNECTORS}/offloading_connector.py", "OffloadingConnector", "vllm.py", name
            )
            for name in ("KVCompressConnector", "KVCompressDeviceConnector")
        ),
    ),
}
# The newest ones when these tests were last looked at: what they have is required as well.
NEWEST = {"lmcache": "0.5.6", "sglang": "0.5.23", "transformers": "5.24.0", "vllm": "0.33.0"}


def pinned() -> dict[str, str]:
    """The versions that the other tests install, by engine."""
    found: dict[str, str] = {}
    names = "lmcache|sglang|transformers|vllm(?=-cpu)"
    for folder in ("tests/engines", "tests/integrations", "validation"):  # the last one counts
        text = (REPOSITORY / folder / "requirements.txt").read_text()
        found |= dict(re.findall(rf"^({names})(?:-cpu)?==(\S+)", text, re.M))
    return found


def ask(*requirements: str) -> dict[str, Wheel]:
    """Asks the index."""
    try:
        return wheels(*requirements)
    except OSError as error:
        pytest.skip(f"the package index does not answer: {error}")


@pytest.fixture(scope="module")
def tested() -> dict[tuple[str, str], Wheel]:
    """By engine and version: those that our classes have to fit."""
    versions = {*pinned().items(), *NEWEST.items()}
    found: dict[tuple[str, str], Wheel] = {}
    left = sorted(versions)
    while left:  # of each engine one version at a time
        now = dict(reversed(left))
        answers = ask(*(f"{name}=={version}" for name, version in now.items()))
        found |= {(name, now[name]): answers[name] for name in now}
        left = [each for each in left if each not in found]
    return found


@pytest.mark.parametrize("engine", INTERFACES)
def test_versions_that_are_required(tested: dict[tuple[str, str], Wheel], engine: str) -> None:
    """Every abstract method, and of all others that are ours as well the same parameters."""
    assert set(pinned()) == set(INTERFACES)
    found = [
        f"{name} {version}: {difference}"
        for (name, version), wheel in tested.items()
        if name == engine
        for interface in INTERFACES[engine]
        for difference in interface.differences(wheel)
    ]
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def newest() -> dict[str, Wheel]:
    """By engine."""
    return ask(*INTERFACES)


@pytest.mark.parametrize("engine", INTERFACES)
def test_newest_version(newest: dict[str, Wheel], engine: str) -> None:
    """One that came since is looked at as well. It is not ours to say when it does."""
    wheel = newest[engine]
    if wheel.version in {NEWEST[engine], pinned()[engine]}:
        pytest.skip(f"the index has nothing newer than {engine} {wheel.version}, which is tested")
    found = [each for interface in INTERFACES[engine] for each in interface.differences(wheel)]
    if found:
        pytest.skip(f"{engine} {wheel.version} is newer, and differs: {'; '.join(found)}")


def arguments(text: str) -> ast.arguments:
    """Returns the arguments of a function."""
    [function] = ast.parse(f"def method({text}): ...").body
    assert isinstance(function, ast.FunctionDef)
    return function.args


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        ("self, a, b", "self, a, b", True),
        ("self, a, b=1", "self, a", True),
        ("self, a, b", "self, a", False),
        ("self, b, a", "self, a, b", False),
        ("self, a", "self, a, b=None", False),
        ("self, a, *more, **named", "self, a, b, c=None", True),
        ("self, a", "self, a, *, b", False),
        ("self, a, *, b=1", "self, a, *, b", True),
        ("self, a", "self, a, **named", False),
    ],
)
def test_comparison(ours: str, theirs: str, *, fits: bool) -> None:
    """A call that theirs takes is one that ours takes."""
    assert accepts(arguments(ours), arguments(theirs)) == fits
