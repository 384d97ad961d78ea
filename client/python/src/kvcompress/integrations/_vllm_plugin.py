# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The entry point of vLLM's group `vllm.general_plugins`: makes our connectors known by name."""

from contextlib import suppress

_NAMES = ("KVCompressConnector", "KVCompressDeviceConnector")
_MODULE = "kvcompress.integrations.vllm"


def register() -> None:
    """Registers the connectors, which are imported where configured; may be called again."""
    from vllm.distributed.kv_transfer.kv_connector.factory import (  # type: ignore[import-not-found,unused-ignore]
        KVConnectorFactory,
    )

    for name in _NAMES:
        with suppress(ValueError):  # it is registered
            KVConnectorFactory.register_connector(name, _MODULE, name)
