// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/auto/auto.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "codecs/option_schema.h"
#include "kvcompress/error.h"
#include "metrics/token_quality.h"
#include "status/macros.h"
#include "tensor/slabs.h"

namespace kvcompress {
namespace {

using Rows = std::vector<std::vector<CodecSpec>>;

absl::StatusOr<Rows> FindCandidates(Effort effort) {
  Rows rows;
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

// Every codec and parameters to try, in rows: see Codec::AutoCandidates.
const absl::StatusOr<Rows>& Candidates(Effort effort) {
  static const auto* const fast =
      new absl::StatusOr<Rows>(FindCandidates(Effort::kFast));
  static const auto* const balanced =
      new absl::StatusOr<Rows>(FindCandidates(Effort::kBalanced));
  static const auto* const best =
      new absl::StatusOr<Rows>(FindCandidates(Effort::kBest));
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

// The most that any of them needs, by `size` of a codec and its parameters.
template <typename Size>
absl::StatusOr<uint64_t> MostOf(Size size) {
  uint64_t most = 0;
  KVC_RETURN_IF_ERROR(Candidates(Effort::kBest).status());
  for (const std::vector<CodecSpec>& row : *Candidates(Effort::kBest)) {
    for (const CodecSpec& candidate : row) {
      KVC_ASSIGN_OR_RETURN(const uint64_t next, size(candidate));
      most = std::max(most, next);
    }
  }
  return most;
}

// What of a tensor is encoded at once: a payload that grows with it is soon
// seen to be too large. A multiple of the size of every element.
constexpr size_t kPiece = 64 << 10;

struct Attempt {
  CodecSpec spec;
  size_t row = 0;
  std::string payload;
  DistortionAccumulator distortion;
  std::optional<TokenSums> tokens;  // if the tensor has any
};

Metrics MetricsOf(const TensorSpec& spec, const Attempt& attempt) {
  Metrics metrics = attempt.distortion.Compute();
  AddTokenMetrics(attempt.tokens ? *attempt.tokens
                                 : TokenSums::Unknown(spec, metrics.max_error),
                  &metrics);
  return metrics;
}

// Appends what a payload decodes to.
absl::Status Decode(const TensorSpec& spec, const CodecSpec& codec,
                    absl::string_view payload, Checkpoint* checkpoint,
                    std::string* decoded) {
  KVC_ASSIGN_OR_RETURN(const std::unique_ptr<TensorDecoder> decoder,
                       codec.codec->NewDecoder(spec, codec.parameters));
  std::string part;
  for (bool more = true; more;) {
    if (Stops(checkpoint)) return checkpoint->status();
    part.clear();
    KVC_ASSIGN_OR_RETURN(more,
                         decoder->Decode(&payload, kMaxDecodedBlock, &part));
    decoded->append(part);
  }
  return decoder->Finish();
}

class Encoder : public TensorEncoder {
 public:
  Encoder(const TensorSpec& spec, const EncodeHints& hints)
      : spec_(spec),
        size_(ElementCount(spec).value_or(0) * DTypeSize(spec.dtype)),
        hints_(hints) {}

  absl::Status Append(absl::string_view bytes, std::string*,
                      std::string*) override {
    if (source_.empty()) source_.reserve(size_);
    source_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  bool measures_tokens() const override { return true; }

  absl::Status Finish(std::string* payload, std::string* decoded) override {
    KVC_RETURN_IF_ERROR(Candidates(hints_.effort).status());
    const Rows& rows = *Candidates(hints_.effort);
    // The last of them are the smallest where there is something to find, and
    // after them little has to be tried to its end.
    for (size_t row = rows.size(); row-- > 0;) {
      for (const CodecSpec& candidate : rows[row]) {
        if (!MayBeKept(candidate, row)) continue;
        KVC_ASSIGN_OR_RETURN(const bool holds, Consider(candidate, row));
        if (!holds) break;
      }
    }
    if (!best_) {
      if (!refusal_.ok()) return refusal_;
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "no codec meets the thresholds",
                       {.reason = "NO_CODEC_HOLDS", .tensor = spec_.name});
    }
    if (decoded != nullptr) {
      decoded->reserve(decoded->size() + size_);
      KVC_RETURN_IF_ERROR(Decode(spec_, best_->spec, best_->payload,
                                 hints_.checkpoint, decoded));
    }
    AppendInSlabs(hints_.checkpoint, std::move(best_->payload), payload);
    return StatusOf(hints_.checkpoint);
  }

  const DistortionAccumulator& distortion() const override {
    return best_->distortion;
  }

  const CodecSpec* chosen() const override { return &best_->spec; }

  const TokenSums* token_sums() const override {
    return best_->tokens ? &*best_->tokens : nullptr;
  }

  KeyHints key_hints() const override { return key_hints_; }

 private:
  // Whether a payload of this size is better than the best so far: no larger,
  // and where it is as large, listed before it.
  bool Better(uint64_t size, size_t row) const {
    return !best_ || size < best_->payload.size() ||
           (size == best_->payload.size() && row < best_->row);
  }

  // False where the size of the payload is known, and not better.
  bool MayBeKept(const CodecSpec& candidate, size_t row) const {
    if (!candidate.codec->traits().fixed_size) return true;
    const absl::StatusOr<uint64_t> size =
        candidate.codec->MaxEncodedSize(spec_, candidate.parameters);
    return !size.ok() || Better(*size, row);
  }

  // Keeps what a candidate gives if it is the best so far of those that hold
  // the thresholds. False where it does not hold them.
  absl::StatusOr<bool> Consider(const CodecSpec& candidate, size_t row) {
    absl::StatusOr<std::optional<Attempt>> attempt = Try(candidate, row);
    KVC_RETURN_IF_ERROR(StatusOf(hints_.checkpoint));
    if (!attempt.ok()) {
      if (attempt.status().code() != absl::StatusCode::kInvalidArgument) {
        return attempt.status();
      }
      refusal_ = attempt.status();
      return false;
    }
    if (!*attempt) return true;
    if (!Judge(MetricsOf(spec_, **attempt), hints_.thresholds).passed) {
      return false;
    }
    if (Better((*attempt)->payload.size(), row)) best_ = **std::move(attempt);
    return true;
  }

  // Nothing where the payload grew beyond the best before it was complete.
  absl::StatusOr<std::optional<Attempt>> Try(const CodecSpec& candidate,
                                             size_t row) {
    Attempt attempt{.spec = candidate, .row = row};
    EncodeHints hints = hints_;
    hints.source = source_;
    KVC_ASSIGN_OR_RETURN(
        const std::unique_ptr<TensorEncoder> encoder,
        candidate.codec->NewEncoder(spec_, candidate.parameters, hints));
    std::optional<TokenAccumulator> tokens;
    if (!encoder->measures_tokens() && TokenAccumulator::Applies(spec_)) {
      tokens.emplace(spec_);
    }
    std::string decoded;  // of a piece, or little more
    for (absl::string_view rest = source_; !rest.empty();
         rest.remove_prefix(std::min(kPiece, rest.size()))) {
      if (Stops(hints_.checkpoint)) return hints_.checkpoint->status();
      const absl::string_view piece = rest.substr(0, kPiece);
      if (tokens) tokens->AddSource(piece);
      KVC_RETURN_IF_ERROR(encoder->Append(piece, &attempt.payload,
                                          tokens ? &decoded : nullptr));
      if (!Better(attempt.payload.size(), row)) return std::nullopt;
      if (tokens) tokens->AddDecoded(decoded, hints_.checkpoint);
      decoded.clear();
    }
    KVC_RETURN_IF_ERROR(
        encoder->Finish(&attempt.payload, tokens ? &decoded : nullptr));
    if (tokens) {
      tokens->AddDecoded(decoded, hints_.checkpoint);
      attempt.tokens = tokens->Compute();
    } else if (encoder->token_sums() != nullptr) {
      attempt.tokens = *encoder->token_sums();
    }
    attempt.distortion = encoder->distortion();
    KeyHints told = encoder->key_hints();
    if (told.rope) key_hints_.rope = told.rope;
    if (told.sharpness) {
      std::optional<RopeFinding> rope = std::move(key_hints_.rope);
      key_hints_ = std::move(told);
      key_hints_.rope = std::move(rope);
    }
    return attempt;
  }

  const TensorSpec spec_;
  const uint64_t size_;  // bytes
  const EncodeHints hints_;
  std::string source_;
  std::optional<Attempt> best_;
  absl::Status refusal_;  // of the last that refused the values
  KeyHints key_hints_;
};

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

  absl::StatusOr<uint64_t> MaxEncodedSize(
      const TensorSpec& spec, const CodecParameters&) const override {
    return MostOf([&](const CodecSpec& candidate) {
      return candidate.codec->MaxEncodedSize(spec, candidate.parameters);
    });
  }

  absl::StatusOr<std::unique_ptr<TensorEncoder>> NewEncoder(
      const TensorSpec& spec, const CodecParameters&,
      const EncodeHints& hints) const override {
    return std::make_unique<Encoder>(spec, hints);
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
