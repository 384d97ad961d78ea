// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Small safetensors files for tests.

#ifndef KVCOMPRESS_TESTS_UNIT_SUPPORT_SAFETENSORS_FILE_H_
#define KVCOMPRESS_TESTS_UNIT_SUPPORT_SAFETENSORS_FILE_H_

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/safetensors.h"
#include "support/placed.h"

namespace kvcompress::testing {

// A file from a text header (any text) and data.
inline std::string RawFile(absl::string_view json,
                           absl::string_view data = "") {
  std::string file(8, '\0');
  uint64_t length = json.size();
  for (int i = 0; i < 8; ++i, length >>= 8) file[i] = static_cast<char>(length);
  file.append(json.data(), json.size());
  file.append(data.data(), data.size());
  return file;
}

inline std::string F32Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * 4, '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

struct NamedTensor {
  TensorSpec spec;
  std::string bytes;
};

// `count` values of a normal distribution, rounded to `dtype`.
inline std::string RandomBytes(DType dtype, size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 0.3f);
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    AppendElement(dtype, normal(engine), &bytes);
  }
  return bytes;
}

inline NamedTensor RandomTensor(std::string name, DType dtype,
                                std::vector<uint64_t> shape) {
  TensorSpec spec{
      .name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
  const uint64_t count = *ElementCount(spec);
  return {std::move(spec), RandomBytes(dtype, count, 11)};
}

inline std::string MakeFile(
    const std::vector<NamedTensor>& tensors,
    std::vector<std::pair<std::string, std::string>> metadata = {}) {
  SafetensorsHeader header;
  header.metadata = std::move(metadata);
  std::string data;
  for (const NamedTensor& tensor : tensors) {
    SafetensorsEntry entry;
    entry.spec = tensor.spec;
    entry.begin = data.size();
    data += tensor.bytes;
    entry.end = data.size();
    header.tensors.push_back(entry);
  }
  return SerializeSafetensorsHeader(header) + data;
}

// Compresses a whole file in chunks of `chunk` bytes.
inline absl::StatusOr<Compressed> CompressInChunks(absl::string_view file,
                                                   CompressOptions options,
                                                   size_t chunk) {
  Compressor compressor(std::move(options), {});
  CompressOutput output;
  for (size_t i = 0; i < file.size(); i += chunk) {
    absl::Status status = compressor.Append(file.substr(i, chunk), &output);
    if (!status.ok()) return status;
  }
  absl::StatusOr<CompressReport> report = compressor.Finish();
  if (!report.ok()) return report.status();
  return Compressed{compressor.header() + output.artefact, output.reconstructed,
                    *std::move(report)};
}

// The same, which has to agree with what it becomes in place.
inline absl::StatusOr<Compressed> CompressFile(absl::string_view file,
                                               CompressOptions options = {},
                                               size_t chunk = 1 << 20) {
  return IfPlacedAgrees(file, options, {},
                        CompressInChunks(file, options, chunk));
}

// Restores a whole artefact that comes in chunks of `chunk` bytes, in steps of
// `most` bytes of output.
inline absl::StatusOr<std::string> DecompressInSteps(absl::string_view artefact,
                                                     DecompressOptions options,
                                                     size_t chunk,
                                                     DecompressReport* report,
                                                     size_t most) {
  Decompressor decompressor(std::move(options), {});
  std::string restored;
  for (size_t i = 0; i < artefact.size(); i += chunk) {
    absl::string_view part = artefact.substr(i, chunk);
    std::string output;
    for (bool more = true; more; output.clear()) {
      const absl::StatusOr<bool> step =
          decompressor.Restore(&part, most, &output);
      if (!step.ok()) return step.status();
      more = *step;
      restored += output;
    }
  }
  absl::StatusOr<DecompressReport> end = decompressor.Finish();
  if (!end.ok()) return end.status();
  if (report != nullptr) *report = *std::move(end);
  return restored;
}

// The same, which has to agree with what is restored in place.
inline absl::StatusOr<std::string> DecompressFile(
    absl::string_view artefact, DecompressOptions options = {},
    size_t chunk = 1 << 20, DecompressReport* report = nullptr,
    size_t most = SIZE_MAX) {
  return IfPlacedAgrees(
      artefact, options, {},
      DecompressInSteps(artefact, options, chunk, report, most));
}

}  // namespace kvcompress::testing

#endif  // KVCOMPRESS_TESTS_UNIT_SUPPORT_SAFETENSORS_FILE_H_
