# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""Generated code of the API kvcompress.v1."""
