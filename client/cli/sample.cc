// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "client/cli/sample.h"

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kvcompress/dtype.h"
#include "kvcompress/safetensors.h"

namespace kvcompress::cli {
namespace {

// Keys and values of two layers, in files that have them one after the other.
constexpr size_t kSampleTensors = 4;
constexpr size_t kHeaderRead = 64 << 10;

absl::StatusOr<SafetensorsHeaderReader> ReadHeader(std::ifstream* file) {
  SafetensorsHeaderReader reader(kMaxSafetensorsHeader);
  std::string buffer(kHeaderRead, '\0');
  while (!reader.done()) {
    file->read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    absl::string_view bytes(buffer.data(), static_cast<size_t>(file->gcount()));
    if (bytes.empty()) return reader.TruncatedError();
    absl::Status status = reader.Append(&bytes);
    if (!status.ok()) return status;
  }
  return reader;
}

bool IsCache(const SafetensorsEntry& entry) {
  return IsNumber(entry.spec.dtype) && entry.spec.shape.size() == 4 &&
         entry.end > entry.begin;
}

// Two neighbours from each third of what is a cache.
std::vector<const SafetensorsEntry*> Choose(
    const std::vector<SafetensorsEntry>& tensors) {
  std::vector<const SafetensorsEntry*> caches;
  for (const SafetensorsEntry& entry : tensors) {
    if (IsCache(entry)) caches.push_back(&entry);
  }
  if (caches.size() <= kSampleTensors) return caches;
  const size_t first = caches.size() / 3 / 2 * 2;
  const size_t second = caches.size() * 2 / 3 / 2 * 2;
  std::vector<const SafetensorsEntry*> chosen;
  for (const size_t begin : {first, second}) {
    chosen.push_back(caches[begin]);
    chosen.push_back(caches[begin + 1]);
  }
  return chosen;
}

// Appends the first `tokens` tokens of each head.
absl::Status AppendTokens(const SafetensorsEntry& entry, uint64_t data_begin,
                          uint64_t tokens, std::ifstream* file,
                          std::string* data) {
  const std::vector<uint64_t>& shape = entry.spec.shape;
  const uint64_t row = shape[3] * DTypeSize(entry.spec.dtype);
  for (uint64_t head = 0; head < shape[0] * shape[1]; ++head) {
    const size_t before = data->size();
    data->resize(before + tokens * row);
    file->seekg(static_cast<std::streamoff>(data_begin + entry.begin +
                                            head * shape[2] * row));
    file->read(data->data() + before,
               static_cast<std::streamsize>(tokens * row));
    if (!*file) return absl::UnavailableError("the file has become shorter");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Sample> SampleOf(const std::string& path, uint64_t most) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::UnavailableError(absl::StrCat("cannot open ", path));
  const absl::StatusOr<SafetensorsHeaderReader> raw = ReadHeader(&file);
  if (!raw.ok()) return raw.status();
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(raw->json());
  if (!header.ok()) return header.status();
  SafetensorsHeader part;
  std::string data;
  const std::vector<const SafetensorsEntry*> chosen = Choose(header->tensors);
  for (const SafetensorsEntry* const entry : chosen) {
    const std::vector<uint64_t>& shape = entry->spec.shape;
    const uint64_t token = (entry->end - entry->begin) / shape[2];
    const uint64_t tokens =
        std::clamp<uint64_t>(most / kSampleTensors / token, 1, shape[2]);
    SafetensorsEntry its = {.spec = entry->spec, .begin = data.size()};
    its.spec.shape[2] = tokens;
    absl::Status status =
        AppendTokens(*entry, raw->raw().size(), tokens, &file, &data);
    if (!status.ok()) return status;
    its.end = data.size();
    part.tensors.push_back(std::move(its));
  }
  if (chosen.empty()) return absl::NotFoundError("no tensor is a cache");
  part.metadata = std::move(header->metadata);
  part.data_size = data.size();
  return Sample{SerializeSafetensorsHeader(part) + data, chosen.size()};
}

}  // namespace kvcompress::cli
