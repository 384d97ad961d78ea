// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "profile/group_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "entropy/tables.h"
#include "profile/rules.h"
#include "quantization/steps.h"

namespace kvcompress::profile {
namespace {

constexpr uint8_t kMode = 1;
enum Flag : uint8_t {
  kExactSinks = 1,
  kUnits = 2,
  kExceptions = 4,
  kTrellis = 8,
  kResiduals = 16,
};
constexpr uint8_t kFlags =
    kExactSinks | kUnits | kExceptions | kTrellis | kResiduals;
constexpr float kMaxUnit = 0x1p32f;
// Where the size of the exceptions is; without these it is reserved.
constexpr size_t kExceptionBytesAt = 28;

template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Get(absl::Span<const uint8_t> bytes, size_t at) {
  T value;
  std::memcpy(&value, &bytes[at], sizeof(value));
  return value;
}

absl::Status Bad(size_t at, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(
      "the header of a group's payload has ", what, ", at byte ", at));
}

}  // namespace

bool Fits(const ProfileTensor& member, const TensorSpec& spec,
          GroupShape* shape) {
  const size_t rank = spec.shape.size();
  if (!IsNumber(spec.dtype) || (rank != 3 && rank != 4)) return false;
  shape->batches = rank == 4 ? spec.shape[0] : 1;
  shape->tokens = spec.shape[rank - 2];
  return spec.shape[rank - 3] == member.heads &&
         spec.shape[rank - 1] == member.channels && shape->batches > 0 &&
         shape->tokens > 0 && shape->tokens < kMaxPosition;
}

void WriteGroupHeader(const GroupHeader& header, std::string* out) {
  Put(kMode, out);
  Put(static_cast<uint8_t>((header.exact_sinks ? kExactSinks : 0) |
                           (header.units ? kUnits : 0) |
                           (header.exceptions ? kExceptions : 0) |
                           (header.trellis ? kTrellis : 0) |
                           (header.residuals ? kResiduals : 0)),
      out);
  Put(header.group, out);
  Put(header.preset, out);
  Put(header.shift, out);
  Put(header.sinks, out);
  Put(uint8_t{0}, out);
  Put(header.first_position, out);
  Put(header.step, out);
  Put(header.block_tokens, out);
  Put(uint16_t{0}, out);
  Put(header.offset_bytes, out);
  Put(header.exception_bytes, out);
}

void MarkExceptions(uint32_t bytes, std::string* payload) {
  std::string& out = *payload;
  out[1] = static_cast<char>(out[1] | kExceptions);
  std::memcpy(&out[kExceptionBytesAt], &bytes, sizeof(bytes));
}

void MarkResiduals(std::string* payload) {
  (*payload)[1] = static_cast<char>((*payload)[1] | kResiduals);
}

absl::StatusOr<GroupHeader> ReadGroupHeader(absl::Span<const uint8_t> bytes,
                                            const ProfileContent& content,
                                            const GroupShape& shape) {
  GroupHeader header;
  if (bytes[0] != kMode) return Bad(0, "an unknown mode");
  if (bytes[1] > kFlags) return Bad(1, "an unknown flag");
  header.exact_sinks = (bytes[1] & kExactSinks) != 0;
  header.units = (bytes[1] & kUnits) != 0;
  header.exceptions = (bytes[1] & kExceptions) != 0;
  header.trellis = (bytes[1] & kTrellis) != 0;
  header.residuals = (bytes[1] & kResiduals) != 0;
  if (header.residuals && header.exceptions) {
    return Bad(1, "both exceptions and residuals");
  }
  if (header.residuals != shape.exact) {
    return Bad(1, shape.exact ? "no residuals, which its codec has"
                              : "residuals, which its codec has not");
  }
  header.group = Get<uint16_t>(bytes, 2);
  header.preset = bytes[4];
  header.shift = Get<int8_t>(bytes, 5);
  header.sinks = bytes[6];
  header.first_position = Get<uint64_t>(bytes, 8);
  header.step = Get<float>(bytes, 16);
  header.block_tokens = Get<uint16_t>(bytes, 20);
  header.offset_bytes = Get<uint32_t>(bytes, 24);
  header.exception_bytes = Get<uint32_t>(bytes, kExceptionBytesAt);
  if (header.group >= content.groups.size()) return Bad(2, "an unknown group");
  if (header.preset >= content.presets.size()) {
    return Bad(4, "an unknown preset");
  }
  if (header.shift < -coding::kClasses || header.shift > coding::kClasses) {
    return Bad(5, "a shift of classes out of its range");
  }
  if (header.sinks > shape.tokens) return Bad(6, "more sinks than tokens");
  if (header.first_position >= kMaxPosition) return Bad(8, "a bad position");
  if (!IsProfileStep(header.step)) return Bad(16, "a bad step");
  if (header.block_tokens < kLeastBlockTokens ||
      header.block_tokens > kMaxBlockTokens) {
    return Bad(20, "blocks of a bad number of tokens");
  }
  if (header.offset_bytes % kOffsetRunSize != 0) {
    return Bad(24, "offsets of a bad size");
  }
  constexpr size_t kReserved[] = {7, 22, 23, 28, 29, 30, 31};
  for (const size_t at : kReserved) {
    if (header.exceptions && at >= kExceptionBytesAt) break;
    if (bytes[at] != 0) return Bad(at, "a reserved byte that is not 0");
  }
  return header;
}

void WriteGroupBlockHeader(const GroupBlockHeader& header, std::string* out) {
  Put(header.size, out);
  Put(header.words, out);
  Put(header.escapes, out);
  Put(header.runs, out);
  Put(uint16_t{0}, out);
}

absl::StatusOr<GroupBlockHeader> ReadGroupBlockHeader(
    absl::Span<const uint8_t> bytes, size_t components) {
  GroupBlockHeader header;
  header.size = Get<uint32_t>(bytes, 0);
  header.words = Get<uint32_t>(bytes, 4);
  header.escapes = Get<uint32_t>(bytes, 8);
  header.runs = Get<uint16_t>(bytes, 12);
  if (uint64_t{header.size} < kGroupBlockHeaderSize + kStatesSize +
                                  2 * uint64_t{header.words} + header.escapes) {
    return absl::DataLossError(
        "a group's payload has a block whose parts are larger than it is");
  }
  const size_t most = (components + coding::kMaxLanes - 1) / coding::kMaxLanes;
  if (header.runs > most) {
    return absl::DataLossError(
        "a group's payload has a block with more components than the profile");
  }
  if (Get<uint16_t>(bytes, 14) != 0) {
    return absl::DataLossError(
        "a group's payload has a block whose reserved bytes are not 0");
  }
  return header;
}

bool IsUnit(float unit) {
  return unit >= 1 / kMaxUnit && unit <= kMaxUnit && coding::IsStep(unit);
}

float RoundToUnit(double value) {
  return coding::RoundToStep(std::clamp<double>(value, 1 / kMaxUnit, kMaxUnit));
}

int8_t ShiftOf(double unit) {
  // A class is a quarter of an octave.
  return static_cast<int8_t>(std::clamp<double>(
      std::round(-4 * std::log2(unit)), -coding::kClasses, coding::kClasses));
}

int ClassAt(uint8_t klass, int shift, int offset) {
  return std::clamp(klass + shift + offset, 0, coding::kClasses - 1);
}

}  // namespace kvcompress::profile
