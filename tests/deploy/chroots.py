# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Other systems, in folders: commands run there as root, with the network of this machine."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# In namespaces of its own, so that mounts and processes end with the command.
_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
_ENTER = """
mkdir -p "$0/proc" "$0/dev"
mount -t proc proc "$0/proc"
mount --bind /dev "$0/dev"
exec chroot "$0" "$@"
"""
_BUNDLE = "/etc/ssl/machine.crt"
_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


class Chroot:
    """A system in a folder."""

    def __init__(self, root: Path) -> None:
        """Takes the folder; it gets the names, registries and certificates of this machine."""
        self.root = root
        (root / "etc").mkdir(exist_ok=True)
        for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf"):
            if Path(file).exists():
                shutil.copyfile(file, f"{root}{file}")
        self._environment = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self._environment |= {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        certificates = Path(os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt"))
        if certificates.is_file():
            Path(f"{root}{_BUNDLE}").parent.mkdir(exist_ok=True)
            shutil.copyfile(certificates, f"{root}{_BUNDLE}")
            self._environment |= {"PIP_CERT": _BUNDLE, "SSL_CERT_FILE": _BUNDLE}

    def __call__(self, *command: str, seconds: float = 600) -> str:
        """Runs a command that must succeed; what it printed on standard output."""
        done = subprocess.run(
            [*_NAMESPACES, "sh", "-ec", _ENTER, str(self.root), *command],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout


def need_chroots() -> None:
    """Skips where none can be entered."""
    if os.geteuid() != 0:
        pytest.skip("only root can enter another system")
    if subprocess.run([*_NAMESPACES, "true"], capture_output=True).returncode != 0:
        pytest.skip("no namespaces for another system can be made here")


@contextmanager
def unpacked(archive: Path, folder: Path) -> Iterator[Chroot]:
    """The system of a tar file; it is gone afterwards."""
    folder.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)  # noqa: S607
    try:
        yield Chroot(folder)
    finally:
        shutil.rmtree(folder)
