# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the configuration of SGLang's storage backend says.

SGLang's own `tp_lcm_size` in it has artefacts cut by heads as ranks of so many have them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, cast

from kvcompress.options import CompressArguments
from kvcompress.store import OPTION_NAMES, StoreOptions

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
        timeout: Seconds that loading an artefact may take; None for what its size takes.
        store_timeout: Seconds that saving one may take; None in the same way.
        element_type: `float8_e4m3fn` or `float8_e5m2`, where SGLang keeps these and calls them
            bytes. Without it bytes are kept as they are.
        identity: What caches depend on other than model name and types, such as a revision; bound
            to each artefact.
        store: The bound of the folder, and more of `kvcompress.store.StoreOptions`; its fields,
            such as `capacity_bytes`, stand next to the other parameters.
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
    timeout: float | None = None
    store_timeout: float | None = None
    element_type: str | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    store: StoreOptions = field(default_factory=StoreOptions)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Reads a configuration.

        Raises:
            TypeError: There is no parameter of a name, or no folder, or one has another type.
            ValueError: A number is not positive, or out of its range.
        """
        own = {name: value for name, value in given.items() if name not in _SGLANGS_OWN}
        bound = {name: own.pop(name) for name in OPTION_NAMES if name in own}
        known = [each.name for each in fields(cls) if each.name != "store"]
        for name in own:
            if name not in known:
                every = ", ".join((*known, *OPTION_NAMES))
                raise TypeError(f"{name!r} is no parameter; there are {every}")
        result = cls(**own, store=StoreOptions.parse(bound))
        for name in ("artefact_tokens", "threads", "timeout", "store_timeout"):
            value = getattr(result, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {getattr(result, name)}, and has to be positive")
        return result

    def options(self) -> CompressArguments:
        """Returns what every call that compresses has."""
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
