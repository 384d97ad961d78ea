// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/auto/auto.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "codecs/auto/candidates.h"
#include "codecs/auto/search.h"
#include "codecs/option_schema.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

// The most that any of them needs, by `size` of a codec and its parameters.
template <typename Size>
absl::StatusOr<uint64_t> MostOf(Size size) {
  uint64_t most = 0;
  KVC_RETURN_IF_ERROR(AutoCandidates(Effort::kBest).status());
  for (const std::vector<CodecSpec>& row : *AutoCandidates(Effort::kBest)) {
    for (const CodecSpec& candidate : row) {
      KVC_ASSIGN_OR_RETURN(const uint64_t next, size(candidate));
      most = std::max(most, next);
    }
  }
  return most;
}

class Auto : public Codec {
 public:
  Auto() {
    traits_.name = "auto";
    traits_.description =
        "For each tensor the smallest codec whose measured quality holds the "
        "thresholds of the request";
    traits_.TakesNumbers();
    traits_.tensor_memory = 4;
    traits_.role_aware = true;
    traits_.takes_key_hints = true;
  }

  const CodecTraits& traits() const override { return traits_; }

  absl::StatusOr<CodecParameters> Parse(absl::string_view text) const override {
    KVC_RETURN_IF_ERROR(ParseOptions(traits_.name, {}, {}, text).status());
    return CodecParameters();
  }

  size_t MaxFieldSize(const CodecParameters&) const override {
    const auto size =
        [](const CodecSpec& candidate) -> absl::StatusOr<uint64_t> {
      return candidate.codec->MaxFieldSize(candidate.parameters);
    };
    return std::max(traits_.name.size(), static_cast<size_t>(*MostOf(size)));
  }

  bool stored() const override { return false; }

  bool learns() const override { return true; }

  bool shares_blocks() const override { return true; }

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters&) const override {
    return MostOf([&](const CodecSpec& candidate) {
      return candidate.codec->MaxEncodedSize(spec, candidate.parameters);
    });
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters&,
      const EncodeHints& hints) const override {
    return NewAutoEncoder(spec, hints);
  }

  absl::StatusOr<std::unique_ptr<TensorDecoder>> NewDecoder(
      const TensorSpec&, const CodecParameters&) const override {
    return absl::InternalError("auto is never stored");
  }

  absl::StatusOr<DecoderBounds> BoundsOfDecoder(
      const TensorSpec&, const CodecParameters&) const override {
    return absl::InternalError("auto is never stored");
  }

 private:
  CodecTraits traits_;
};

}  // namespace

const Codec& AutoCodec() {
  static const Auto* const codec = new Auto;
  return *codec;
}

}  // namespace kvcompress
