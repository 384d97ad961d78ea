// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The page at `/`: what answers here, and links to the other pages.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_INDEX_PAGE_H_
#define KVCOMPRESS_SERVER_TELEMETRY_INDEX_PAGE_H_

#include <string>

namespace kvcompress {

// HTML. It does not change while the process runs.
std::string IndexPage();

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_INDEX_PAGE_H_
