// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The safetensors parser: whatever it takes it can write, and read again.

#include "input.h"
#include "kvcompress/safetensors.h"

namespace kvcompress::fuzz {
namespace {

void CheckEqual(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  Require(a.metadata == b.metadata, "metadata comes back");
  Require(a.data_size == b.data_size, "the size of the data comes back");
  Require(a.tensors.size() == b.tensors.size(), "tensors come back");
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    Require(a.tensors[i].spec.name == b.tensors[i].spec.name &&
                a.tensors[i].spec.dtype == b.tensors[i].spec.dtype &&
                a.tensors[i].spec.shape == b.tensors[i].spec.shape &&
                a.tensors[i].begin == b.tensors[i].begin &&
                a.tensors[i].end == b.tensors[i].end,
            "a tensor comes back");
  }
}

// The rules that what comes after relies on.
void CheckRules(const SafetensorsHeader& header) {
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    const absl::StatusOr<uint64_t> elements = ElementCount(entry.spec);
    Require(elements.ok(), "the size of a tensor does not overflow");
    Require(
        entry.begin == position && entry.end >= entry.begin &&
            entry.end - entry.begin == *elements * DTypeSize(entry.spec.dtype),
        "tensors follow one another without gaps");
    position = entry.end;
  }
  Require(position == header.data_size, "tensors cover the data");
}

void Fuzz(Input input) {
  const uint8_t seed = input.Byte();
  SafetensorsHeaderReader reader(1 << 20);
  absl::Status status;
  InChunks(input.rest(), seed, [&](absl::string_view chunk) {
    status = reader.Append(&chunk);
    return status.ok();
  });
  if (!status.ok() || !reader.done()) {
    // The text alone, which the mutations need not give its length.
    ParseSafetensorsHeader(input.rest()).status().IgnoreError();
    return;
  }
  const absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(reader.json());
  if (!header.ok()) return;
  CheckRules(*header);
  const std::string written = SerializeSafetensorsHeader(*header);
  const absl::StatusOr<SafetensorsHeader> again =
      ParseSafetensorsHeader(absl::string_view(written).substr(8));
  Require(again.ok(), "what is written can be read");
  CheckEqual(*header, *again);
}

}  // namespace
}  // namespace kvcompress::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcompress::fuzz::Fuzz({data, size});
  return 0;
}
