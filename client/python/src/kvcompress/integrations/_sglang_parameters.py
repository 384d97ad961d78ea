# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the configuration of SGLang's storage backend says."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, cast

from kvcompress.options import CompressArguments

_SGLANGS_OWN = ("backend_name", "module_path", "class_name", "interface_v1", "tp_lcm_size")


@dataclass(frozen=True)
class Parameters:
    """What `--hicache-storage-backend-extra-config` says in addition to SGLang's own.

    Attributes:
        folder: Where artefacts are kept; engines may share it.
        server: Address of a service; None for a server of the engine's own.
        codec: Codec string.
        effort: As `CompressArguments` has it.
        profile: As there: the name, digest or label of the model's profile on the server.
        profile_directory: Without `server`: where the engine's own server finds profiles.
        rope_theta: As there.
        artefact_tokens: Tokens of an artefact, at most; one page at least.
        threads: Artefacts that are loaded at once.
        timeout: Seconds that loading an artefact may take.
        store_timeout: Seconds that saving one may take.
        element_type: `float8_e4m3fn` or `float8_e5m2`, where SGLang keeps these and calls them
            bytes. Without it bytes are kept as they are.
        identity: What caches depend on other than model name and types, such as a revision; bound
            to each artefact.
    """

    folder: str
    server: str | None = None
    codec: str = "auto"
    effort: str = "fast"
    profile: str | None = None
    profile_directory: str | None = None
    rope_theta: float | None = None
    artefact_tokens: int = 512
    threads: int = 2
    timeout: float = 0.75
    store_timeout: float = 30.0
    element_type: str | None = None
    identity: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Reads a configuration.

        Raises:
            TypeError: There is no parameter of a name, or no folder.
            ValueError: A number is not positive.
        """
        own = {name: value for name, value in given.items() if name not in _SGLANGS_OWN}
        known = [each.name for each in fields(cls)]
        for name in own:
            if name not in known:
                raise TypeError(f"{name!r} is no parameter; there are {', '.join(known)}")
        result = cls(**own)
        for name in ("artefact_tokens", "threads", "timeout", "store_timeout"):
            if getattr(result, name) <= 0:
                raise ValueError(f"{name} is {getattr(result, name)}, and has to be positive")
        return result

    def options(self) -> CompressArguments:
        """Gives what every call that compresses has."""
        options: CompressArguments = {
            "codec": self.codec,
            "effort": cast("Any", self.effort),
            "report_tensors": False,
        }
        if self.profile is not None:
            options["profile"] = self.profile
        if self.rope_theta is not None:
            options["rope_theta"] = self.rope_theta
        return options
