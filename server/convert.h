// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Between the messages of the API and the types of the library. Pure functions.

#ifndef KVCOMPRESS_SERVER_CONVERT_H_
#define KVCOMPRESS_SERVER_CONVERT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/v1/compression_service.pb.h"
#include "profile_set.h"

namespace kvcompress {

// INVALID_ARGUMENT for an effort or level that there is not, and a layer that
// is there twice.
absl::StatusOr<CompressOptions> FromProto(const v1::CompressOptions& proto);
// INVALID_ARGUMENT for an order that there is not.
absl::StatusOr<DecompressOptions> FromProto(const v1::DecompressOptions& proto);

v1::DataType ToProto(DType dtype);
// INVALID_ARGUMENT when a type is not set; the error of the checkpoint where it
// stops.
absl::StatusOr<std::vector<TensorSpec>> TensorsFromProto(
    const v1::TensorTable& proto, Checkpoint* checkpoint);
// The metadata, sorted by key: maps have no order on the wire.
std::vector<std::pair<std::string, std::string>> MetadataFromProto(
    const v1::TensorTable& proto);

// `with_tensors`: whether to list every tensor. Not complete where the
// checkpoint stops it.
v1::CompressionReport ToProto(const CompressReport& report, bool with_tensors,
                              double seconds, Checkpoint* checkpoint = nullptr);
v1::DecompressionReport ToProto(const DecompressReport& report, double seconds);
v1::CodecInfo ToProto(const CodecTraits& traits);
v1::ProfileInfo ToProto(const LoadedProfile& loaded);
v1::PresetExpectation ToProto(absl::string_view preset,
                              const ProfileExpectation& expected);

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_CONVERT_H_
