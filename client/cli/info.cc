// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/info.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kvcompress/artefact.h"
#include "kvcompress/dtype.h"
#include "kvcompress/error.h"
#include "kvcompress/safetensors.h"

namespace kvcompress::cli {
namespace {

using Json = nlohmann::ordered_json;

struct HeaderAndSize {
  std::string raw;         // length field included
  uint64_t file_size = 0;  // bytes
};

absl::StatusOr<HeaderAndSize> ReadAll(ByteSource* source) {
  SafetensorsHeaderReader reader(kMaxSafetensorsHeader);
  HeaderAndSize result;
  std::string buffer(1 << 16, '\0');
  while (true) {
    const absl::StatusOr<size_t> size = source->Read(absl::MakeSpan(buffer));
    if (!size.ok()) return size.status();
    if (*size == 0) break;
    result.file_size += *size;
    if (reader.done()) continue;
    absl::string_view bytes(buffer.data(), *size);
    if (absl::Status status = reader.Append(&bytes); !status.ok()) {
      return status;
    }
  }
  if (!reader.done()) return reader.TruncatedError();
  result.raw = reader.raw();
  return result;
}

absl::Status CheckSize(const ArtefactHeader& header,
                       const HeaderAndSize& file) {
  uint64_t expected = file.raw.size();
  for (const ArtefactTensor& tensor : header.tensors) {
    expected += tensor.payload_size;
  }
  if (file.file_size == expected) return absl::OkStatus();
  const bool cut = file.file_size < expected;
  return MakeError(
      absl::StatusCode::kDataLoss,
      absl::StrCat("the artefact is damaged: ", file.file_size,
                   " bytes instead of the ", expected, " its header describes"),
      {.reason = cut ? "TRUNCATED" : "TRAILING_BYTES",
       .offset = cut ? file.file_size : expected});
}

Json RoleJson(TensorRole role) {
  switch (role) {
    case TensorRole::kKey:
      return "key";
    case TensorRole::kValue:
      return "value";
    case TensorRole::kNone:
      break;
  }
  return nullptr;
}

double Ratio(double numerator, uint64_t denominator) {
  return denominator == 0 ? 0 : numerator / static_cast<double>(denominator);
}

}  // namespace

absl::StatusOr<Json> InfoJson(ByteSource* artefact) {
  const absl::StatusOr<HeaderAndSize> file = ReadAll(artefact);
  if (!file.ok()) return file.status();
  absl::StatusOr<ArtefactHeader> header = ParseArtefactHeader(file->raw);
  if (!header.ok()) return header.status();
  if (absl::Status status = CheckSize(*header, *file); !status.ok()) {
    return status;
  }
  uint64_t all_elements = 0, original_size = 0;
  Json tensors = Json::array();
  for (const ArtefactTensor& tensor : header->tensors) {
    const TensorSpec& spec = tensor.spec;
    const absl::StatusOr<uint64_t> elements = ElementCount(spec);
    if (!elements.ok()) return elements.status();
    const uint64_t size = *elements * DTypeSize(spec.dtype);
    all_elements += *elements;
    original_size += size;
    tensors.push_back(
        {{"name", spec.name},
         {"codec", tensor.codec.ToString()},
         {"dtype", std::string(DTypeName(spec.dtype))},
         {"shape", spec.shape},
         {"role", RoleJson(spec.role)},
         {"layer", spec.layer ? Json(*spec.layer) : Json()},
         {"original_size_bytes", size},
         {"payload_size_bytes", tensor.payload_size},
         {"bits_per_value",
          Ratio(8.0 * static_cast<double>(tensor.payload_size), *elements)},
         {"digest", tensor.digest}});
  }
  Json::object_t metadata;
  for (auto& [key, value] : header->metadata) {
    metadata.emplace_back(key, value);
  }
  const auto compressed_size = static_cast<double>(file->file_size);
  return Json{{"format_version", header->format_version},
              {"payload_digest", header->checksum},
              {"compression_ratio",
               Ratio(2.0 * static_cast<double>(all_elements), file->file_size)},
              {"bits_per_value", Ratio(8 * compressed_size, all_elements)},
              {"original_size_bytes", original_size},
              {"compressed_size_bytes", file->file_size},
              {"header_size_bytes", file->raw.size()},
              {"labels", header->labels},
              {"metadata", std::move(metadata)},
              {"tensor_count", header->tensors.size()},
              {"tensors", std::move(tensors)}};
}

}  // namespace kvcompress::cli
