// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/block_reader.h"

#include <cstdlib>
#include <cstring>

#include "quantization/int8.h"
#include "quantization/norms.h"
#include "quantization/steps.h"
#include "status/macros.h"

namespace kvcompress::coding {

absl::Status BlockReader::Open(absl::Span<const uint8_t> bytes, size_t counts) {
  KVC_ASSIGN_OR_RETURN(sizes_, ReadBlockHeader(header_.mode, bytes, elements_));
  size_t at = BlockHeaderSize(header_.mode);
  absl::Status status;
  const auto cut = [&](absl::string_view section, uint64_t size) {
    if (!status.ok()) return absl::Span<const uint8_t>();
    if (size > bytes.size() - at) {
      status = absl::DataLossError(absl::StrCat(
          "the ", section, " at offset ", at, ", ", size,
          " bytes, go beyond the block, which has ", bytes.size()));
      return absl::Span<const uint8_t>();
    }
    const absl::Span<const uint8_t> taken = bytes.subspan(at, size);
    at += size;
    return taken;
  };
  const uint64_t sinks = header_.Int8Sinks(block_);
  counts_ = cut("counts of reflectors", counts);
  const auto states = cut("states", lanes_ * sizeof(uint32_t));
  const auto words = cut("words", uint64_t{2} * sizes_.words);
  const auto escapes = cut("escapes", sizes_.escapes);
  sink_scales_ = cut("scales of sinks", 2 * block_.heads * sinks);
  sink_codes_ = cut("codes of sinks", channels_ * sinks);
  exceptions_ = cut("exceptions", sizes_.exceptions);
  KVC_RETURN_IF_ERROR(status);
  rans_.emplace(states, words);
  escapes_.emplace(escapes);
  low_bits_.emplace(bytes.subspan(at));
  if (!rans_->valid()) {
    return absl::DataLossError("a state of the entropy coder is out of range");
  }
  return absl::OkStatus();
}

absl::Status BlockReader::ReadSideData(BlockContent* content) {
  KVC_RETURN_IF_ERROR(ReadSymbols(
      "classes", channels_, [&](size_t) { return sizes_.class_table; },
      [&](int64_t value) {
        value += sizes_.class_middle;
        if (value < 0 || value >= kClasses) return false;
        content->classes.push_back(static_cast<uint8_t>(value));
        return true;
      }));
  KVC_RETURN_IF_ERROR(ReadSymbols(
      "means", channels_, [&](size_t) { return sizes_.mean_table; },
      [&](int64_t value) {
        if (std::abs(value) > kMaxMean) return false;
        content->means.push_back(static_cast<int32_t>(value));
        return true;
      }));
  for (int32_t& mean : content->means) {
    const int64_t whole = int64_t{mean} * (int64_t{1} << sizes_.mean_shift) +
                          low_bits_->Get(sizes_.mean_shift);
    if (std::abs(whole) > kMaxMean) {
      return absl::DataLossError(
          absl::StrCat("number ", &mean - content->means.data(),
                       " of the means is beyond its limits with its low bits"));
    }
    mean = static_cast<int32_t>(whole);
  }
  if (!header_.norms) return absl::OkStatus();
  return ReadSymbols(
      "norms", block_.heads * block_.tokens,
      [&](size_t) { return sizes_.norm_table; },
      [&](int64_t value) {
        value += sizes_.norm_middle;
        if (value < 0 || value >= kNormEnd) return false;
        content->norms.push_back(static_cast<uint16_t>(value));
        return true;
      });
}

absl::Status BlockReader::Finish(BlockContent* content) {
  KVC_RETURN_IF_ERROR(ReadSinks(content));
  if (!rans_->AtEnd()) {
    return absl::DataLossError(
        "the words do not end where the symbols do, or in another state than "
        "an encoder begins with");
  }
  if (!escapes_->AtEnd()) {
    return absl::DataLossError("the list of escapes has more than are used");
  }
  if (!low_bits_->AtEnd()) {
    return absl::DataLossError("the low bits do not end where the block does");
  }
  return absl::OkStatus();
}

absl::Status BlockReader::ReadSinks(BlockContent* content) const {
  content->sink_scales.resize(sink_scales_.size() / sizeof(uint16_t));
  if (sink_scales_.empty()) return absl::OkStatus();
  std::memcpy(content->sink_scales.data(), sink_scales_.data(),
              sink_scales_.size());
  content->sink_codes.assign(sink_codes_.begin(), sink_codes_.end());
  if (!std::all_of(content->sink_scales.begin(), content->sink_scales.end(),
                   Int8Scale::Valid)) {
    return absl::DataLossError("the scale of a sink is negative or not finite");
  }
  if (std::find(content->sink_codes.begin(), content->sink_codes.end(),
                int8_t{-128}) != content->sink_codes.end()) {
    return absl::DataLossError("the code of a sink is -128");
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::coding
