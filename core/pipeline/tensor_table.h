// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What is known of tensors before their data: those that are declared, instead
// of coming as a safetensors file, and whether a codec takes them. Internal to
// the library.

#ifndef KVCOMPRESS_PIPELINE_TENSOR_TABLE_H_
#define KVCOMPRESS_PIPELINE_TENSOR_TABLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcompress/artefact.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/safetensors.h"
#include "kvcompress/tensor.h"

namespace kvcompress {

// The header of a file made of `tensors`, one after the other.
// INVALID_ARGUMENT for a name or metadata that is not UTF-8, for a reserved
// name, for a shape that ElementCount refuses, and for what breaks another rule
// of the format. OUT_OF_RANGE for a header of more than `max_header_bytes`. The
// error of the checkpoint where it stops.
absl::StatusOr<SafetensorsHeader> HeaderOf(
    const std::vector<TensorSpec>& tensors,
    std::vector<std::pair<std::string, std::string>> metadata,
    uint64_t max_header_bytes, Checkpoint* checkpoint);

// Bytes of a tensor. REQUIRES: its spec was checked.
uint64_t BytesOf(const TensorSpec& spec);

// Whether a codec takes a tensor whose data begin at `offset` plus those of the
// entry. OUT_OF_RANGE when it holds a whole tensor and this one is larger than
// `max_bytes`. REQUIRES: it takes the type.
absl::Status CheckTensor(const SafetensorsEntry& entry, uint64_t offset,
                         const CodecTraits& traits, uint64_t max_bytes);

// The codec of a tensor where a cache is coded with `codec`: that one, or
// `lossless` where it does not take the type.
absl::StatusOr<CodecSpec> CodecFor(DType dtype, const CodecSpec& codec);

// Bytes that encoding a tensor takes where a codec holds all of it, more where
// it `reconstructs` it for the caller, and those that measuring it token by
// token takes.
uint64_t EncoderMemory(const SafetensorsEntry& entry, const CodecTraits& traits,
                       bool reconstructs);

// AssignRoles, of the tensors of a file.
absl::Status AssignRolesTo(const RolePatterns& patterns, Checkpoint* checkpoint,
                           std::vector<SafetensorsEntry>* tensors);

// Counts roles, and warns where a codec that knows roles has tensors of numbers
// and none of them has one.
void ReportRoles(const CodecTraits& traits,
                 const std::vector<ArtefactTensor>& tensors,
                 CompressReport* report);

// Whether thresholds that were given for keys, or for values, have a tensor to
// hold for. INVALID_ARGUMENT with reason THRESHOLD_MATCHES_NOTHING if not:
// nobody would notice that such a bound binds nothing.
absl::Status CheckThresholdsMatch(const CompressOptions& options,
                                  const std::vector<ArtefactTensor>& tensors);

}  // namespace kvcompress

#endif  // KVCOMPRESS_PIPELINE_TENSOR_TABLE_H_
