# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Certificates of a server: what it does not start with, and how it follows changes."""

import os
import ssl
from pathlib import Path

import grpc
import health
import pytest
from authority import Authority, Pair, openssl
from calls import metric
from server_process import PATIENCE, ServerProcess, Start, run, wait_until

QUICK = ["--tls-reload-seconds", "0.1"]


def shown(server: ServerProcess) -> str:
    """The certificate that a server shows, PEM."""
    host, port = server.addresses[0].rsplit(":", 1)
    return ssl.get_server_certificate((host, int(port)), timeout=PATIENCE)


def expiry(pair: Pair) -> float:
    """When a certificate is over, by Python's ssl."""
    decode = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
    return ssl.cert_time_to_seconds(decode(str(pair.certificate))["notAfter"])


def test_follows_a_new_pair(start: Start, authority: Authority) -> None:
    """Without a restart; the metric says when the new certificate is over."""
    used, new = authority.sign("used", days=5), authority.sign("new", days=9)
    server = start(*used.server_flags, *QUICK)
    assert shown(server) == used.certificate.read_text()
    assert metric(server, "kvcompress_tls_certificate_expiry_timestamp_seconds") == expiry(used)
    new.copy_to(used)
    server.wait_log("loaded the changed files")
    wait_until(lambda: shown(server) == new.certificate.read_text())
    assert metric(server, "kvcompress_tls_certificate_expiry_timestamp_seconds") == expiry(new)


def test_follows_links(start: Start, authority: Authority, tmp_path: Path) -> None:
    """As Kubernetes mounts a secret: names that are links, through a folder that is one."""
    for name, days in (("first", 5), ("second", 9)):
        pair, folder = authority.sign(name, days=days), tmp_path / f"..{name}"
        folder.mkdir()
        (folder / "tls.crt").write_bytes(pair.certificate.read_bytes())
        (folder / "tls.key").write_bytes(pair.key.read_bytes())
    data = tmp_path / "..data"
    data.symlink_to("..first")
    flags = []
    for flag, name in (("--tls-cert", "tls.crt"), ("--tls-key", "tls.key")):
        (tmp_path / name).symlink_to(f"..data/{name}")
        flags += [flag, str(tmp_path / name)]
    server = start(*flags, *QUICK)
    assert shown(server) == (tmp_path / "..first/tls.crt").read_text()
    (tmp_path / "..next").symlink_to("..second")
    (tmp_path / "..next").rename(data)
    wait_until(lambda: shown(server) == (tmp_path / "..second/tls.crt").read_text())


@pytest.mark.parametrize("fault", ["other key", "garbage", "cut", "expired", "gone", "a FIFO"])
def test_keeps_the_old_pair(start: Start, authority: Authority, fault: str) -> None:
    """When the new one is bad; and takes up a good one after that."""
    used, new = authority.sign("used", days=5), authority.sign("new", days=9)
    server = start(*used.server_flags, *QUICK)
    before = used.certificate.read_text()
    if fault == "other key":
        used.key.write_bytes(new.key.read_bytes())
    elif fault == "garbage":
        used.certificate.write_bytes(b"\0\n-----BEGIN CERTIFICATE-----\n")
    elif fault == "cut":
        used.certificate.write_text(before + before[: len(before) // 2])
    elif fault == "expired":
        authority.sign("over", days=-1).copy_to(used)
    elif fault == "a FIFO":
        used.key.unlink()
        os.mkfifo(used.key)
    else:
        used.key.unlink()
    server.wait_log("keeping the certificate in use")
    wait_until(lambda: metric(server, "kvcompress_tls_reload_failures_total") >= 1)
    assert shown(server) == before
    new.copy_to(used)
    wait_until(lambda: shown(server) == new.certificate.read_text())


def test_follows_the_authority_of_clients(
    start: Start, authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """Whose certificates are taken changes with the file."""
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(authority.certificate.read_bytes())
    flags = authority.sign("server").server_flags
    server = start(*flags, "--tls-client-ca", str(trusted), *QUICK)
    client = stranger.sign("client")

    def served() -> bool:
        credentials = grpc.ssl_channel_credentials(
            authority.certificate.read_bytes(),
            client.key.read_bytes(),
            client.certificate.read_bytes(),
        )
        with grpc.secure_channel(server.addresses[0], credentials) as channel:
            try:
                return health.check(channel, "", PATIENCE) == health.SERVING
            except grpc.RpcError:
                return False

    assert not served()
    trusted.write_bytes(stranger.certificate.read_bytes())
    wait_until(served)


def faults(authority: Authority, folder: Path) -> dict[str, tuple[list[str], str]]:
    """Flags that no server starts with, and the words that say why."""
    good, other = authority.sign("good"), authority.sign("other")
    garbage, locked, fifo = folder / "garbage", folder / "locked.key", folder / "fifo"
    garbage.write_text("not PEM")
    os.mkfifo(fifo)
    openssl("ec", "-in", good.key, "-aes128", "-passout", "pass:secret", "-out", locked)
    cert, key = str(good.certificate), str(good.key)
    return {
        "no certificate": (["--tls-cert", "/no/such", "--tls-key", key], "/no/such: No such file"),
        "no key": (["--tls-cert", cert, "--tls-key", "/no/such"], "/no/such: No such file"),
        "other key": (["--tls-cert", cert, "--tls-key", str(other.key)], "not the key of"),
        "locked key": (["--tls-cert", cert, "--tls-key", str(locked)], "no unencrypted"),
        "garbage": (["--tls-cert", str(garbage), "--tls-key", key], "no certificate in PEM"),
        "a folder": (["--tls-cert", str(folder), "--tls-key", key], f"{folder}: "),
        "a FIFO": (["--tls-cert", str(fifo), "--tls-key", key], "fifo: not a regular file"),
        "a FIFO for a key": (["--tls-cert", cert, "--tls-key", str(fifo)], "not a regular file"),
        "a FIFO of authorities": (
            [*good.server_flags, "--tls-client-ca", str(fifo)],
            "not a regular file",
        ),
        "expired": (authority.sign("over", days=-1).server_flags, "expired on 20"),
        "bad authority": ([*good.server_flags, "--tls-client-ca", str(garbage)], "no certificate"),
        "key alone": (["--tls-key", key], "--tls-cert and --tls-key go together"),
        "authority alone": (["--tls-client-ca", cert], "--tls-client-ca needs --tls-cert"),
    }


def test_does_not_start_with_bad_files(authority: Authority, tmp_path: Path) -> None:
    """The reason is one line, the same with --check-config."""
    for flags, words in faults(authority, tmp_path).values():
        for check in ([], ["--check-config"]):
            result = run("--listen", "127.0.0.1:0", "--metrics-listen", "", *flags, *check)
            assert (result.returncode, words in result.stderr) == (1, True), (flags, result.stderr)


def test_check_config(authority: Authority) -> None:
    """Answers yes, and listens nowhere."""
    result = run("--check-config", "--listen", "0.0.0.0:1", *authority.sign("good").server_flags)
    assert (result.returncode, result.stdout) == (0, "the configuration is valid\n")
