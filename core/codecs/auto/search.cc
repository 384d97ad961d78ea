// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/auto/search.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codecs/auto/candidates.h"
#include "codecs/auto/prediction.h"
#include "kernels/elements.h"
#include "kvcompress/error.h"
#include "metrics/token_quality.h"
#include "status/macros.h"
#include "tensor/grow.h"
#include "tensor/not_finite.h"
#include "tensor/slabs.h"

namespace kvcompress {
namespace {

// What of a tensor is encoded at once: a payload that grows with it is soon
// seen to be too large. A multiple of the size of every element.
constexpr size_t kPiece = 64 << 10;

// The part of the best so far that a likely size is to be below.
constexpr double kWorthIt = 0.99;

// Of a tensor with so many tokens, one part in kParts is searched, the first
// tokens, and predicts what is likely for all of it.
constexpr uint64_t kLongTensor = 4096;
constexpr uint64_t kParts = 8;

struct Attempt {
  CodecSpec spec;
  size_t row = 0;
  std::string payload;
  DistortionAccumulator distortion;
  std::optional<TokenSums> tokens;  // if the tensor has any
};

Metrics MetricsOf(const TensorSpec& spec, bool measures_tokens,
                  const Attempt& attempt) {
  Metrics metrics = attempt.distortion.Compute();
  if (!measures_tokens) return metrics;
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
    if (source_.empty()) Reserve(size_, &source_);
    source_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }

  bool measures_tokens() const override { return true; }

  absl::Status Finish(std::string* payload, std::string* decoded) override {
    KVC_RETURN_IF_ERROR(AutoCandidates(hints_.effort).status());
    Begin();
    if (earlier_ == nullptr) KVC_RETURN_IF_ERROR(SearchSample());
    if (earlier_ != nullptr) KVC_RETURN_IF_ERROR(TryLikely());
    if (!best_) KVC_RETURN_IF_ERROR(TryAll());
    if (!best_) {
      if (!refusal_.ok()) return refusal_;
      return MakeError(absl::StatusCode::kInvalidArgument,
                       "no codec meets the thresholds",
                       {.reason = "NO_CODEC_HOLDS", .tensor = spec_.name});
    }
    const std::optional<ErrorDetail> refused = GetErrorDetail(refusal_);
    key_hints_.not_finite = refused && refused->reason == kNotFinite;
    if (sample_findings_ != nullptr) TakeOverFindings();
    if (decoded != nullptr) {
      decoded->reserve(decoded->size() + size_);
      KVC_RETURN_IF_ERROR(Decode(spec_, best_->spec, best_->payload,
                                 hints_.checkpoint, decoded));
    }
    AppendInSlabs(hints_.checkpoint, &best_->payload, payload);
    return StatusOf(hints_.checkpoint);
  }

  const DistortionAccumulator& distortion() const override {
    return best_->distortion;
  }

  const CodecSpec* chosen() const override { return &best_->spec; }

  std::shared_ptr<const EncoderFindings> findings() const override {
    return findings_;
  }

  const TokenSums* token_sums() const override {
    return best_->tokens ? &*best_->tokens : nullptr;
  }

  KeyHints key_hints() const override { return key_hints_; }

 private:
  // A candidate that was not tried yet, and the size it is likely to have.
  struct Likely {
    uint64_t size = 0;
    size_t row = 0;
    size_t column = 0;
  };

  void Begin() {
    rows_ = &*AutoCandidates(hints_.effort);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(source_.data());
    const uint64_t elements = size_ / DTypeSize(spec_.dtype);
    double squares = 0;
    InSlabs(hints_.checkpoint, elements, [&](size_t first, size_t count) {
      const uint8_t* const slab = bytes + first * DTypeSize(spec_.dtype);
      squares += CompareElements(spec_.dtype, slab, slab, count).sum_x2;
    });
    findings_->power =
        elements == 0 ? 0 : squares / static_cast<double>(elements);
    for (const std::vector<CodecSpec>& row : *rows_) {
      findings_->rows.emplace_back(row.size());
      tried_.emplace_back(row.size());
    }
    // Where effort does not matter, nothing is left to likelihood.
    const auto* const earlier =
        dynamic_cast<const AutoFindings*>(hints_.earlier.get());
    if (earlier == nullptr || hints_.effort == Effort::kBest || size_ == 0 ||
        earlier->rows.size() != rows_->size()) {
      return;
    }
    earlier_ = earlier;
  }

  // Where the tensor is long, has every candidate try a sample of it.
  absl::Status SearchSample() {
    if (hints_.effort == Effort::kBest || spec_.shape.size() < 2) {
      return absl::OkStatus();
    }
    TensorSpec spec = spec_;
    uint64_t& tokens = spec.shape[spec.shape.size() - 2];
    if (tokens < kLongTensor || size_ == 0) return absl::OkStatus();
    const uint64_t row = spec.shape.back() * DTypeSize(spec.dtype);
    const uint64_t stride = tokens * row;  // from one head to the next
    tokens /= kParts;
    EncodeHints hints = hints_;
    hints.source = {};
    for (std::vector<float>* const octaves :
         {&hints.attention, &hints.from_keys.attention}) {
      if (octaves->size() > tokens) octaves->resize(tokens);
    }
    Encoder sample(spec, hints);
    for (uint64_t begin = 0; begin < size_; begin += stride) {
      if (Stops(hints_.checkpoint)) return hints_.checkpoint->status();
      KVC_RETURN_IF_ERROR(
          sample.Append(absl::string_view(source_).substr(begin, tokens * row),
                        nullptr, nullptr));
    }
    std::string payload;
    const absl::Status status = sample.Finish(&payload, nullptr);
    KVC_RETURN_IF_ERROR(StatusOf(hints_.checkpoint));
    // What does not hold, or is refused, may do so in the whole tensor alone.
    if (!status.ok()) {
      return status.code() == absl::StatusCode::kInvalidArgument
                 ? absl::OkStatus()
                 : status;
    }
    sample_findings_ = sample.findings_;
    earlier_ = sample_findings_.get();
    return absl::OkStatus();
  }

  // Those of the sample stand for what was not tried, for encoders that start
  // from this tensor.
  void TakeOverFindings() {
    const uint64_t size = sample_findings_->kept().size;
    const std::optional<AutoFinding>& whole =
        findings_->rows[sample_findings_->row][sample_findings_->column];
    const double scale = whole && size > 0 ? static_cast<double>(whole->size) /
                                                 static_cast<double>(size)
                                           : static_cast<double>(kParts);
    for (size_t row = 0; row < rows_->size(); ++row) {
      for (size_t column = 0; column < (*rows_)[row].size(); ++column) {
        if (tried_[row][column] || !sample_findings_->rows[row][column]) {
          continue;
        }
        AutoFinding finding = *sample_findings_->rows[row][column];
        finding.size =
            static_cast<uint64_t>(static_cast<double>(finding.size) * scale);
        findings_->rows[row][column] = std::move(finding);
      }
    }
  }

  absl::Status TryAll() {
    // The last of them are the smallest where there is something to find, and
    // after them little has to be tried to its end.
    for (size_t row = rows_->size(); row-- > 0;) {
      for (size_t column = 0; column < (*rows_)[row].size(); ++column) {
        if (!MayBeKept((*rows_)[row][column], row)) continue;
        if (tried_[row][column] && !findings_->rows[row][column]) break;
        KVC_ASSIGN_OR_RETURN(const bool holds, Consider(row, column));
        if (!holds) break;
      }
    }
    return absl::OkStatus();
  }

  // The one that was kept for the earlier tensor, and those that are likely to
  // be smaller and to hold the thresholds.
  absl::Status TryLikely() {
    KVC_ASSIGN_OR_RETURN(bool holds, Consider(earlier_->row, earlier_->column));
    const std::optional<AutoFinding>& kept =
        findings_->rows[earlier_->row][earlier_->column];
    if (!kept) return absl::OkStatus();
    size_t row = earlier_->row;
    size_t column = earlier_->column;
    while (true) {
      // What is coarser than one that held was not tried where that did not.
      const bool coarser = holds && column + 1 < (*rows_)[row].size() &&
                           !earlier_->rows[row][column + 1] &&
                           !tried_[row][column + 1] && best_->row == row;
      if (coarser) {
        ++column;
      } else {
        const std::optional<Likely> next = MostLikely(*kept);
        if (!next) return absl::OkStatus();
        row = next->row;
        column = next->column;
      }
      KVC_ASSIGN_OR_RETURN(holds, Consider(row, column));
    }
  }

  // The smallest of those that are worth a try.
  std::optional<Likely> MostLikely(const AutoFinding& kept) const {
    std::optional<Likely> most;
    for (size_t row = 0; row < rows_->size(); ++row) {
      for (size_t column = 0; column < (*rows_)[row].size(); ++column) {
        const CodecSpec& candidate = (*rows_)[row][column];
        const std::optional<AutoFinding>& before = earlier_->rows[row][column];
        if (tried_[row][column] || !before || !MayBeKept(candidate, row)) {
          continue;
        }
        const std::optional<uint64_t> size =
            LikelySize(*before, *earlier_, kept, size_ / DTypeSize(spec_.dtype),
                       findings_->power, hints_.thresholds);
        if (!size || (best_ && static_cast<double>(*size) >
                                   kWorthIt * static_cast<double>(
                                                  best_->payload.size()))) {
          continue;
        }
        if (!most || *size < most->size) most = Likely{*size, row, column};
      }
    }
    return most;
  }

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

  // Keeps what a candidate produces if it is the best so far of those that hold
  // the thresholds. False where it does not hold them.
  absl::StatusOr<bool> Consider(size_t row, size_t column) {
    if (tried_[row][column]) return true;
    tried_[row][column] = true;
    absl::StatusOr<std::optional<Attempt>> attempt =
        Try((*rows_)[row][column], row);
    KVC_RETURN_IF_ERROR(StatusOf(hints_.checkpoint));
    if (!attempt.ok()) {
      if (attempt.status().code() != absl::StatusCode::kInvalidArgument) {
        return attempt.status();
      }
      refusal_ = attempt.status();
      return false;
    }
    AutoFinding& finding = findings_->rows[row][column].emplace();
    if (!*attempt) {
      finding.size = best_->payload.size();
      return true;
    }
    finding.size = (*attempt)->payload.size();
    finding.metrics = MetricsOf(spec_, hints_.measures_tokens, **attempt);
    if (!Judge(*finding.metrics, hints_.thresholds).passed) return false;
    if (Better((*attempt)->payload.size(), row)) {
      best_ = **std::move(attempt);
      findings_->row = row;
      findings_->column = column;
    }
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
    if (hints_.measures_tokens && !encoder->measures_tokens() &&
        TokenAccumulator::Applies(spec_)) {
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
    if (!told.rope) told.rope = std::move(key_hints_.rope);
    if (!told.likelier_theta) told.likelier_theta = key_hints_.likelier_theta;
    if (told.sharpness) {
      key_hints_ = std::move(told);
    } else {
      key_hints_.rope = std::move(told.rope);
      key_hints_.likelier_theta = told.likelier_theta;
    }
    return attempt;
  }

  const TensorSpec spec_;
  const uint64_t size_;  // bytes
  const EncodeHints hints_;
  const AutoRows* rows_ = nullptr;
  const AutoFindings* earlier_ = nullptr;  // of a tensor, or of the sample
  std::shared_ptr<const AutoFindings> sample_findings_;
  const std::shared_ptr<AutoFindings> findings_ =
      std::make_shared<AutoFindings>();
  std::vector<std::vector<bool>> tried_;
  std::string source_;
  std::optional<Attempt> best_;
  absl::Status refusal_;  // of the last that refused the values
  KeyHints key_hints_;
};

}  // namespace

std::unique_ptr<TensorEncoder> NewAutoEncoder(const TensorSpec& spec,
                                              const EncodeHints& hints) {
  return std::make_unique<Encoder>(spec, hints);
}

}  // namespace kvcompress
