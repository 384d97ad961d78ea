// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "pipeline/group_members.h"

#include <algorithm>
#include <utility>

#include "codecs/lossless/block.h"
#include "codecs/lossless/planes.h"
#include "kernels/kernels.h"
#include "kernels/lane_sums.h"
#include "kvcompress/error.h"
#include "profile/member_restorer.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

// Elements that are compared between two looks at the checkpoint.
constexpr size_t kCompared = size_t{1} << 20;

// As `lossless` measures what it codes.
void MeasureExactly(DType dtype, absl::string_view elements,
                    DistortionAccumulator* distortion) {
  const size_t size = DTypeSize(dtype);
  const size_t block = lossless::kBlockElements * size;
  for (size_t first = 0; first < elements.size(); first += block) {
    const absl::string_view some = elements.substr(first, block);
    distortion->Add(
        lossless::MeasureExact(reinterpret_cast<const uint8_t*>(some.data()),
                               some.size() / size, dtype));
  }
}

// Returns the elements of a member piece by piece, and asks a checkpoint, which
// may be null, before each.
class MemberDecoder : public TensorDecoder {
 public:
  MemberDecoder(std::shared_ptr<const profile::GroupQuanta> quanta,
                size_t member, std::string tensor, Checkpoint* checkpoint)
      : tensor_(std::move(tensor)),
        heads_(quanta->shape().batches * quanta->group().tensors[member].heads),
        tokens_(quanta->shape().tokens),
        restorer_(std::move(quanta), member),
        token_size_(restorer_.channels() * DTypeSize(restorer_.dtype())),
        at_once_(restorer_.tokens_at_once()),
        checkpoint_(checkpoint) {}

  absl::StatusOr<bool> DecodeStep(absl::string_view* payload, size_t most,
                                  std::string* decoded) override {
    payload->remove_prefix(payload->size());
    while (head_ < heads_) {
      const size_t count = std::min<uint64_t>(at_once_, tokens_ - token_);
      const size_t size = count * token_size_;
      if (!Fits(size, most, *decoded)) return true;
      if (Stops(checkpoint_)) return checkpoint_->status();
      const uint64_t begin = (head_ * tokens_ + token_) * restorer_.channels();
      const size_t before = decoded->size();
      decoded->resize(before + size);
      if (IsNeeded(begin, begin + count * restorer_.channels())) {
        const absl::Status status = restorer_.Restore(
            head_ / restorer_.heads(), head_ % restorer_.heads(), token_, count,
            reinterpret_cast<uint8_t*>(&(*decoded)[before]));
        if (!status.ok()) {
          decoded->resize(before);
          return MakeError(absl::StatusCode::kDataLoss, status.message(),
                           {.reason = "PAYLOAD_DAMAGED", .tensor = tensor_});
        }
      } else {
        restorer_.Skip(head_ / restorer_.heads(), head_ % restorer_.heads(),
                       token_, count);
      }
      token_ += count;
      if (token_ < tokens_) continue;
      token_ = 0;
      ++head_;
    }
    return false;
  }

  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  const std::string tensor_;
  const uint64_t heads_;  // of all batches
  const uint64_t tokens_;
  profile::MemberRestorer restorer_;
  const size_t token_size_;  // bytes
  const size_t at_once_;     // tokens
  Checkpoint* const checkpoint_;
  uint64_t head_ = 0;
  uint64_t token_ = 0;
};

class SkippingDecoder : public TensorDecoder {
 public:
  absl::StatusOr<bool> DecodeStep(absl::string_view* payload, size_t,
                                  std::string*) override {
    payload->remove_prefix(payload->size());
    return false;
  }
  absl::Status Finish() override { return absl::OkStatus(); }
};

}  // namespace

DistortionSums CompareMember(DType dtype, absl::string_view source,
                             absl::string_view decoded,
                             Checkpoint* checkpoint) {
  const auto bytes = [](absl::string_view elements) {
    return reinterpret_cast<const uint8_t*>(elements.data());
  };
  const size_t count = decoded.size() / DTypeSize(dtype);
  const auto compare = kernels::Active().rows.compare[static_cast<int>(dtype)];
  kernels::LaneSums lanes;
  for (size_t i = 0; i < count && !Stops(checkpoint); i += kCompared) {
    compare(bytes(source), bytes(decoded), i, std::min(count, i + kCompared),
            &lanes);
  }
  return lanes.Total(count);
}

std::unique_ptr<TensorDecoder> NewMemberDecoder(
    std::shared_ptr<const profile::GroupQuanta> quanta, size_t member,
    std::string tensor, Checkpoint* checkpoint) {
  return std::make_unique<MemberDecoder>(std::move(quanta), member,
                                         std::move(tensor), checkpoint);
}

std::unique_ptr<TensorDecoder> NewSkippingDecoder() {
  return std::make_unique<SkippingDecoder>();
}

absl::StatusOr<std::shared_ptr<const profile::GroupQuanta>> QuantaOf(
    absl::string_view payload, std::shared_ptr<const Profile> profile,
    size_t group, const profile::GroupShape& shape, Workers* workers,
    Checkpoint* checkpoint) {
  absl::StatusOr<std::shared_ptr<const profile::GroupQuanta>> quanta =
      profile::GroupQuanta::Parse(payload, std::move(profile), group, shape,
                                  checkpoint, workers);
  if (quanta.ok()) return quanta;
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  return absl::InternalError(quanta.status().message());
}

absl::StatusOr<std::string> RestoreMember(
    std::shared_ptr<const profile::GroupQuanta> quanta, size_t member,
    Checkpoint* checkpoint) {
  std::string bytes;
  absl::string_view none;
  MemberDecoder decoder(std::move(quanta), member, /*tensor=*/"", checkpoint);
  KVC_RETURN_IF_ERROR(decoder.Decode(&none, SIZE_MAX, &bytes).status());
  return bytes;
}

Metrics MemberQuality::MetricsOf(const TensorSpec& spec) const {
  Metrics metrics = distortion.Compute();
  AddTokenMetrics(
      tokens ? *tokens : TokenSums::Unknown(spec, metrics.max_error), &metrics);
  return metrics;
}

absl::StatusOr<std::optional<TokenSums>> MeasureTokens(
    const TensorSpec& spec, absl::string_view source, absl::string_view decoded,
    Checkpoint* checkpoint) {
  if (!TokenAccumulator::Applies(spec)) return std::nullopt;
  TokenAccumulator tokens(spec);
  tokens.AddSource(source);
  tokens.AddDecoded(decoded, checkpoint);
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  return tokens.Compute();
}

absl::StatusOr<MemberQuality> MeasureMember(const TensorSpec& spec,
                                            absl::string_view source,
                                            absl::string_view decoded,
                                            Checkpoint* checkpoint) {
  MemberQuality quality;
  if (source == decoded) {
    MeasureExactly(spec.dtype, source, &quality.distortion);
  } else {
    quality.distortion.Add(
        CompareMember(spec.dtype, source, decoded, checkpoint));
  }
  KVC_RETURN_IF_ERROR(StatusOf(checkpoint));
  KVC_ASSIGN_OR_RETURN(quality.tokens,
                       MeasureTokens(spec, source, decoded, checkpoint));
  return quality;
}

}  // namespace kvcompress
