// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/index_page.h"

#include "absl/strings/str_cat.h"
#include "kvcompress/version.h"
#include "telemetry/html.h"

namespace kvcompress {
namespace {

struct Link {
  const char* path;
  const char* text;
};

constexpr Link kLinks[] = {
    {"/statusz",
     "What the server is doing: calls, memory, quality by codec, "
     "the last errors. For a browser."},
    {"/metrics", "All counters, gauges and histograms, for Prometheus."},
    {"/healthz", "SERVING or NOT_SERVING: readiness, for load balancers."},
    {"/livez", "ALIVE or NOT_ALIVE: liveness, for orchestrators."}};

}  // namespace

std::string IndexPage() {
  std::string page = absl::StrCat(
      PageHead("kv-compressd"), "<h1>kv-compressd</h1>\n<p>Version ", kVersion,
      ", API ", kApiVersion, ", artefact format ", kFormatVersion,
      ". Compresses KV caches over gRPC, on another port; this one is for "
      "looking at it.</p>\n<dl>");
  for (const Link& link : kLinks) {
    absl::StrAppend(&page, "<dt><a href=", link.path, ">", link.path,
                    "</a></dt><dd>", link.text, "</dd>\n");
  }
  return absl::StrCat(page, "</dl>\n", kPageEnd);
}

}  // namespace kvcompress
