# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0
"""What the study of codecs and the perplexity validator share."""
