// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/auto/candidates.h"

#include <string>
#include <utility>

#include "status/macros.h"

namespace kvcompress {
namespace {

absl::StatusOr<AutoRows> FindCandidates(Effort effort) {
  AutoRows rows;
  for (const Codec* codec : AllCodecs()) {
    for (const std::vector<std::string>& row : codec->AutoCandidates(effort)) {
      rows.emplace_back();
      for (const std::string& text : row) {
        KVC_ASSIGN_OR_RETURN(CodecParameters parameters, codec->Parse(text));
        rows.back().push_back({codec, std::move(parameters)});
      }
    }
  }
  return rows;
}

}  // namespace

const absl::StatusOr<AutoRows>& AutoCandidates(Effort effort) {
  static const auto* const fast =
      new absl::StatusOr<AutoRows>(FindCandidates(Effort::kFast));
  static const auto* const balanced =
      new absl::StatusOr<AutoRows>(FindCandidates(Effort::kBalanced));
  static const auto* const best =
      new absl::StatusOr<AutoRows>(FindCandidates(Effort::kBest));
  switch (effort) {
    case Effort::kFast:
      return *fast;
    case Effort::kBest:
      return *best;
    case Effort::kBalanced:
      break;
  }
  return *balanced;
}

}  // namespace kvcompress
