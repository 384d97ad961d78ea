# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""An independent encoder, in NumPy, written from core/FORMAT.md and the proto files alone.

The output of the service is compared with that of this package, byte for byte.
"""
