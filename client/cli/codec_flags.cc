// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/codec_flags.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/profile_flags.h"
#include "kvcompress/codec.h"

namespace kvcompress::cli {
namespace {

// The shortest text that reads as this number, without an exponent.
std::string DecimalText(double value) {
  char digits[512];
  const std::to_chars_result end = std::to_chars(
      std::begin(digits), std::end(digits), value, std::chars_format::fixed);
  return std::string(std::begin(digits), end.ptr);
}

bool IsCodecName(absl::string_view name) {
  for (const Codec* codec : AllCodecs()) {
    if (codec->traits().name == name) return true;
  }
  return false;
}

}  // namespace

absl::Status SetCodec(const RawFlags& raw, Flags* flags) {
  absl::string_view given = raw.codec;
  if (given.empty()) {
    // The first release had int4 alone, whose flags these are.
    const bool first = raw.group_size || raw.sparsity;
    given = first ? kFirstReleaseCodec : kDefaultCodec;
    if (!first) flags->effort = v1::EFFORT_FAST;
  }
  const size_t plus = std::min(given.find('+'), given.size());
  std::string codec(given.substr(0, plus));
  std::vector<std::string> parameters;
  if (!raw.preset.empty()) parameters.push_back(raw.preset);
  if (raw.group_size) {
    uint32_t size;
    if (!absl::SimpleAtoi(*raw.group_size, &size)) {
      return InvalidValue(*raw.group_size, "group-size");
    }
    if (size != 32 && size != 64 && size != 128) {
      return InvalidValue(*raw.group_size, "group-size",
                          "must be 32, 64 or 128");
    }
    parameters.push_back(absl::StrCat("group_size=", size));
  }
  if (raw.sparsity) {
    double sparsity;
    if (!absl::SimpleAtod(*raw.sparsity, &sparsity)) {
      return InvalidValue(*raw.sparsity, "sparsity");
    }
    if (!(sparsity >= 0 && sparsity <= 1)) {
      return InvalidValue(*raw.sparsity, "sparsity", "must be from 0 to 1");
    }
    // It stands for the codec that has one.
    const bool sparse = codec.substr(0, codec.find(':')) == "sparse";
    if (sparsity != 0 && !raw.codec.empty() && !sparse) {
      return absl::InvalidArgumentError(
          "-sparsity needs -codec sparse, or no -codec");
    }
    if (sparsity != 0 && raw.codec.empty()) codec = "sparse";
    if (sparsity != 0 || sparse) {
      parameters.push_back(absl::StrCat("sparsity=", DecimalText(sparsity)));
    }
  }
  if (!parameters.empty()) {
    absl::StrAppend(&codec, absl::StrContains(codec, ':') ? "," : ":",
                    absl::StrJoin(parameters, ","));
  }
  absl::StrAppend(&codec, given.substr(plus), raw.last_stage.empty() ? "" : "+",
                  raw.last_stage);
  flags->default_codec = raw.codec.empty() && raw.preset.empty() &&
                         raw.last_stage.empty() &&
                         absl::StartsWith(codec, kFirstReleaseCodec);
  flags->codec = std::move(codec);
  return absl::OkStatus();
}

absl::string_view NameOfCodec(absl::string_view codec) {
  return codec.substr(0, codec.find_first_of(":+"));
}

std::vector<std::string> SplitCodecs(absl::string_view text) {
  std::vector<std::string> codecs;
  for (const absl::string_view word :
       absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    bool first = true;
    for (const absl::string_view part : absl::StrSplit(word, ',')) {
      if (first || IsCodecName(NameOfCodec(part))) {
        codecs.emplace_back(part);
      } else {
        absl::StrAppend(&codecs.back(), ",", part);
      }
      first = false;
    }
  }
  return codecs;
}

}  // namespace kvcompress::cli
