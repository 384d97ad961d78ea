# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The directory of profiles: what is loaded, refused, followed, counted and limited."""

import shutil
from pathlib import Path

import pytest
from calls import metric
from server_process import ServerProcess, Start, run, wait_until

from kvcompress import Client, DataLossError, FailedPreconditionError, InvalidArgumentError

GOLDEN = Path(__file__).parents[1] / "golden" / "profile"
TINY = GOLDEN / "tiny.profile"
SOURCE = GOLDEN / "cache.safetensors"
OTHER = GOLDEN.parent / "sources" / "bf16.safetensors"
QUICK = ("--profile-reload-seconds", "0.1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty directory for profiles."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    return folder


def put(folder: Path, name: str, content: bytes) -> None:
    """Puts a file there as operators should, by a rename."""
    (folder / ".new").write_bytes(content)
    (folder / ".new").rename(folder / name)


def names(server: ServerProcess) -> list[str]:
    """Names of the profiles that a server has."""
    with Client(server.addresses[0], timeout=20) as client:
        return [profile.name for profile in client.server_info().profiles]


def test_follows_the_directory(start: Start, folder: Path) -> None:
    """Files appear, are taken for calls, counted, and vanish."""
    server = start("--profile-directory", str(folder), *QUICK)
    assert names(server) == []
    put(folder, "small.profile", TINY.read_bytes())
    (folder / "README").write_text("no profile")
    server.wait_log('profiles: loaded "small"')
    wait_until(lambda: metric(server, "kvcompress_profiles") == 1)
    assert metric(server, "kvcompress_profile_bytes") == TINY.stat().st_size
    with Client(server.addresses[0], timeout=20) as client:
        artefact = client.compress(SOURCE, codec="klt:ultra", profile="small").artefact
        assert artefact is not None
        client.decompress(artefact)
        for direction in ("compress", "decompress"):
            labels = f'{{direction="{direction}",profile="small"}}'
            assert metric(server, f"kvcompress_profile_caches_total{labels}") == 1
        size = metric(server, 'kvcompress_profile_artefact_bytes_total{profile="small"}')
        assert size == len(artefact)
        values = metric(server, 'kvcompress_profile_value_bytes_total{profile="small"}')
        assert values == 8 * 2 * 2 * 60 * 16
        assert metric(server, 'kvcompress_profile_fit_count{profile="small"}') == 1
        assert metric(server, 'kvcompress_profile_fit_bucket{profile="small",le="0.7"}') == 0
        with pytest.raises(InvalidArgumentError, match="PROFILE_MISMATCH"):
            client.measure(OTHER, codec="klt:ultra", profile="small")
        assert "small" in server.get("/statusz")[2]
        (folder / "small.profile").unlink()
        server.wait_log('profiles: "small" is gone')
        wait_until(lambda: metric(server, "kvcompress_profiles") == 0)
        with pytest.raises(FailedPreconditionError, match="PROFILE_MISSING"):
            client.decompress(artefact)
        with pytest.raises(FailedPreconditionError, match="PROFILE_UNKNOWN"):
            client.measure(SOURCE, codec="klt:ultra", profile="small")
    for reason in ("missing", "unknown", "mismatch"):
        series = f'kvcompress_profile_failures_total{{reason="{reason}"}}'
        assert metric(server, series) == 1
    assert "kvcompress_profile_caches_total" not in server.get("/metrics")[2]


def test_what_is_not_fit_is_refused_whole(start: Start, folder: Path) -> None:
    """At the start as later; the profile that a name had stays."""
    good = TINY.read_bytes()
    digest = "0" * 64
    put(folder, "cut.profile", good[:-1])
    put(folder, "none.profile", good)
    put(folder, f"sha256-{digest}.profile", good)
    put(folder, "large.profile", bytes(2 << 20))
    (folder / "folder.profile").mkdir()
    (folder / "link.profile").symlink_to("absent")
    put(folder, "small.profile", good)
    limit = ("--max-profile-bytes", str(1 << 20))
    server = start("--profile-directory", str(folder), *limit, *QUICK)
    assert names(server) == ["small"]
    assert metric(server, "kvcompress_profiles_refused") == 6
    assert metric(server, "kvcompress_profile_refusals_total") == 6
    for words in ("its size is not what", "not the one that its name says", "raise that limit"):
        server.wait_log(words)
    put(folder, "small.profile", good[:1000])
    server.wait_log("keeping the one before")
    wait_until(lambda: metric(server, "kvcompress_profiles_refused") == 7)
    with Client(server.addresses[0], timeout=20) as client:
        assert client.measure(SOURCE, codec="klt:high", profile="small").profile is not None
        for name in ("cut", f"sha256:{digest}"):
            with pytest.raises(DataLossError, match="refused the file of the profile") as error:
                client.measure(SOURCE, codec="klt:high", profile=name)
            assert error.value.reason == "PROFILE_DAMAGED"
    put(folder, "cut.profile", good)
    wait_until(lambda: names(server) == ["cut", "small"])


def test_an_artefact_whose_profile_is_damaged(start: Start, folder: Path) -> None:
    """Is distinguished from one whose profile is missing, where the file is named by its digest."""
    with Client(start().addresses[0], timeout=20) as client:
        artefact = (GOLDEN / "cache.kvc.safetensors").read_bytes()
        with pytest.raises(FailedPreconditionError) as missing:
            client.decompress(artefact)
    assert missing.value.profile is not None
    name = missing.value.profile.replace(":", "-") + ".profile"
    put(folder, name, TINY.read_bytes()[:-1])
    server = start("--profile-directory", str(folder), *QUICK)
    with Client(server.addresses[0], timeout=20) as client:
        with pytest.raises(DataLossError, match="PROFILE_DAMAGED"):
            client.decompress(artefact)
        put(folder, name, TINY.read_bytes())
        server.wait_log("profiles: loaded")
        assert client.decompress(artefact).safetensors == SOURCE.read_bytes()


def test_follows_links(start: Start, folder: Path) -> None:
    """As Kubernetes mounts a ConfigMap: names that are links, through a folder that is one."""
    for version in ("..first", "..second"):
        (folder / version).mkdir()
        shutil.copy(TINY, folder / version / "small.profile")
    data = (folder / "..second" / "small.profile").read_bytes()
    (folder / "..second" / "small.profile").write_bytes(data.replace(b"caches=2", b"caches=3"))
    (folder / "..data").symlink_to("..first")
    (folder / "small.profile").symlink_to("..data/small.profile")
    server = start("--profile-directory", str(folder), *QUICK)
    with Client(server.addresses[0], timeout=20) as client:
        assert "caches=2" in client.server_info().profiles[0].training
        (folder / "..next").symlink_to("..second")
        (folder / "..next").rename(folder / "..data")
        wait_until(lambda: "caches=3" in client.server_info().profiles[0].training)


def test_unfit_names_hid_a_profile(start: Start, folder: Path) -> None:
    """However many there are; some of them are reported."""
    for index in range(300):
        (folder / f"!junk{index:03}.profile").write_bytes(b"x")
    put(folder, "real.profile", TINY.read_bytes())
    server = start("--profile-directory", str(folder), *QUICK)
    assert names(server) == ["real"]
    assert metric(server, "kvcompress_profiles_refused") == 128


def test_files_beyond_the_limit_were_left_out_in_silence(start: Start, folder: Path) -> None:
    """Log, metric and --check-config say so; what is known stays, whatever is added."""
    put(folder, "real.profile", TINY.read_bytes())
    server = start("--profile-directory", str(folder), *QUICK)
    for index in range(129):
        (folder / f"a{index:03}.profile").write_bytes(b"x")
    server.wait_log("profiles: left out 2 more files than the 128")
    wait_until(lambda: metric(server, "kvcompress_profiles_refused") == 129)
    assert names(server) == ["real"]
    for index in range(128):
        (folder / f"a{index:03}.profile").write_bytes(TINY.read_bytes())
    checked = run("--check-config", "--profile-directory", str(folder))
    assert (checked.returncode, "left out 2 more" in checked.stderr) == (1, True)
    for index in range(2):
        (folder / f"a{index:03}.profile").unlink()
    wait_until(lambda: metric(server, "kvcompress_profiles_refused") == 64)


def test_configurations(tmp_path: Path, folder: Path) -> None:
    absent = run("--check-config", "--profile-directory", str(tmp_path / "absent"))
    assert (absent.returncode, "absent" in absent.stderr) == (1, True)
    shutil.copy(TINY, folder / "small.profile")
    assert run("--check-config", "--profile-directory", str(folder)).returncode == 0
    put(folder, "cut.profile", TINY.read_bytes()[:100])
    refused = run("--check-config", "--profile-directory", str(folder))
    assert (refused.returncode, '"cut"' in refused.stderr) == (1, True)
    assert run("--profile-directory", str(tmp_path / "absent")).returncode == 1
