// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The tensors of a group, restored and measured. Internal to the library.

#ifndef KVCOMPRESS_PIPELINE_GROUP_MEMBERS_H_
#define KVCOMPRESS_PIPELINE_GROUP_MEMBERS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvcompress/checkpoint.h"
#include "kvcompress/codec.h"
#include "kvcompress/metrics.h"
#include "kvcompress/tensor.h"
#include "metrics/token_quality.h"
#include "profile/group_decoder.h"
#include "profile/group_format.h"
#include "tensor/workers.h"

namespace kvcompress {

// Returns the elements of a member piece by piece, and asks the checkpoint,
// which may be null, before each. Errors name the tensor.
std::unique_ptr<TensorDecoder> NewMemberDecoder(
    std::shared_ptr<const profile::GroupQuanta> quanta, size_t member,
    std::string tensor, Checkpoint* checkpoint);

// Takes the payload of a member of a group of which nothing is needed, so that
// its digest matters alone. Returns nothing.
std::unique_ptr<TensorDecoder> NewSkippingDecoder();

// The quanta of a payload that was just made. INTERNAL where it cannot be read;
// the error of the checkpoint, which may be null.
absl::StatusOr<std::shared_ptr<const profile::GroupQuanta>> QuantaOf(
    absl::string_view payload, std::shared_ptr<const Profile> profile,
    size_t group, const profile::GroupShape& shape, Workers* workers,
    Checkpoint* checkpoint);

// All elements of a member.
absl::StatusOr<std::string> RestoreMember(
    std::shared_ptr<const profile::GroupQuanta> quanta, size_t member,
    Checkpoint* checkpoint);

// What a member lost. Anything when the checkpoint, which may be null, stops.
DistortionSums CompareMember(DType dtype, absl::string_view source,
                             absl::string_view decoded, Checkpoint* checkpoint);

struct MemberQuality {
  DistortionAccumulator distortion;
  std::optional<TokenSums> tokens;

  Metrics MetricsOf(const TensorSpec& spec) const;
};

// What a tensor's tokens lost; nothing for a tensor that has none. The error of
// the checkpoint, which may be null.
absl::StatusOr<std::optional<TokenSums>> MeasureTokens(
    const TensorSpec& spec, absl::string_view source, absl::string_view decoded,
    Checkpoint* checkpoint);

// What a tensor lost: nothing where both are the same, NaN included. The error
// of the checkpoint, which may be null.
absl::StatusOr<MemberQuality> MeasureMember(const TensorSpec& spec,
                                            absl::string_view source,
                                            absl::string_view decoded,
                                            Checkpoint* checkpoint);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_GROUP_MEMBERS_H_
