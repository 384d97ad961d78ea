# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""The entry point of vLLM's group `vllm.general_plugins`: makes our connector known by its name."""

from contextlib import suppress

_NAME, _MODULE = "KVCompressConnector", "kvcompress.integrations.vllm"


def register() -> None:
    """Registers the connector, which is imported where it is configured; may be called again."""
    from vllm.distributed.kv_transfer.kv_connector.factory import (  # type: ignore[import-not-found,unused-ignore]
        KVConnectorFactory,
    )

    with suppress(ValueError):  # it is registered
        KVConnectorFactory.register_connector(_NAME, _MODULE, _NAME)
