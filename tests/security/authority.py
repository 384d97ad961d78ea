# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""A certificate authority of a test's own."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*arguments: object) -> None:
    """Runs openssl."""
    command = [shutil.which("openssl") or "openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM files."""

    certificate: Path
    key: Path

    @property
    def server_flags(self) -> list[str]:
        """Flags of kv-compressd."""
        return ["--tls-cert", str(self.certificate), "--tls-key", str(self.key)]

    def copy_to(self, other: "Pair") -> None:
        """Puts this pair instead of another, as a rotation does: each file at once."""
        for source, target in ((self.key, other.key), (self.certificate, other.certificate)):
            fresh = target.with_suffix(".new")
            fresh.write_bytes(source.read_bytes())
            fresh.replace(target)


class Authority:
    """Signs certificates, for localhost and 127.0.0.1 unless said otherwise."""

    def __init__(self, folder: Path, name: str) -> None:
        """Makes the authority's own certificate."""
        self._folder, self._name = folder, name
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl(
            *("req", "-x509", *_NEW_KEY, "-subj", f"/CN={name}", "-days", "30"),
            *("-keyout", self._key, "-out", self.certificate),
        )

    def sign(self, name: str, days: int = 7, names: str = "DNS:localhost,IP:127.0.0.1") -> Pair:
        """A new pair; one that is over already where `days` is negative.

        `names` are the subject alternative names, as openssl takes them.
        """
        path = self._folder / f"{self._name}-{name}"
        pair = Pair(path.with_suffix(".pem"), path.with_suffix(".key"))
        request, extensions = path.with_suffix(".csr"), path.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={names}\n" if names else "")
        openssl(
            *("req", "-new", *_NEW_KEY, "-subj", f"/CN={name}"),
            *("-keyout", pair.key, "-out", request),
        )
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-CAcreateserial", "-days", days, "-extfile", extensions, "-out", pair.certificate),
        )
        return pair
