// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/html.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace kvcompress {
namespace {

constexpr char kStyle[] = R"(
:root{color-scheme:light dark;--back:#fff;--text:#1c2430;--muted:#5b6673;
--line:#d8dde3;--head:#f3f5f8;--good:#2f6fdb;--bad:#d4501a}
@media(prefers-color-scheme:dark){:root{--back:#14181d;--text:#e4e8ec;
--muted:#9aa5b1;--line:#353d47;--head:#1e242b;--good:#6aa5ff;--bad:#ff8a4c}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;padding:1rem 1.25rem 3rem;
max-width:72rem;background:var(--back);color:var(--text)}
a{color:var(--good)}h1{font-size:1.5rem;margin:.5rem 0}
h2{font-size:1.15rem;margin:2rem 0 .5rem}p{margin:.25rem 0}
.muted{color:var(--muted)}.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem}
th,td{border-bottom:1px solid var(--line);padding:.3rem .8rem .3rem .4rem;
text-align:left;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
th{background:var(--head)}
.facts td{white-space:normal}.facts td+td{overflow-wrap:anywhere}
.charts{display:grid;gap:1rem;margin:1rem 0;
grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}
figure{margin:0;padding:.75rem .9rem;border:1px solid var(--line);
border-radius:.5rem}
figcaption{margin-bottom:.4rem}svg{display:block;width:100%;height:auto}
svg text{font:14px system-ui,sans-serif;fill:var(--muted)}
svg .name{fill:var(--text)}svg .rule{stroke:var(--line)}
.good{fill:var(--good);color:var(--good)}.bad{fill:var(--bad);color:var(--bad)}
dt{font-weight:600;margin-top:1rem}dd{margin:0}
)";

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

std::string PageHead(absl::string_view title) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>"
      "<meta name=viewport content=\"width=device-width,initial-scale=1\">"
      "<title>",
      EscapeHtml(title), "</title><style>", kStyle, "</style></head>\n<body>");
}

std::string ShowBytes(double bytes) {
  if (bytes < 1 << 20) return absl::StrFormat("%.1f KiB", bytes / 1024);
  if (bytes < 1 << 30) return absl::StrFormat("%.1f MiB", bytes / (1 << 20));
  return absl::StrFormat("%.2f GiB", bytes / (1 << 30));
}

}  // namespace kvcompress
