// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What the pages for people have in common. They need nothing from elsewhere,
// follow the browser's preference for light or dark, and fit a phone.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTML_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTML_H_

#include <string>

#include "absl/strings/string_view.h"

namespace kvcompress {

std::string EscapeHtml(absl::string_view text);

// From the doctype to <body>.
std::string PageHead(absl::string_view title);
inline constexpr char kPageEnd[] = "</body></html>\n";

// "512 B", "4.0 MiB", "1.50 GiB".
std::string ShowBytes(double bytes);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTML_H_
