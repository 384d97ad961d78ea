# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""An independent encoder, in NumPy, written from core/FORMAT.md and the proto files alone.

What the service gives is compared with what this package gives, byte for byte.
"""
