# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""KV Compress within other libraries; each module needs the one that it is named after."""
