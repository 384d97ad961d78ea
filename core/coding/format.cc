// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/format.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "entropy/tables.h"
#include "quantization/norms.h"
#include "quantization/steps.h"

namespace kvcompress::coding {
namespace {

constexpr uint8_t kHasNorms = 1;
constexpr uint8_t kHasRotation = 2;
constexpr uint8_t kIsInterleaved = 4;
// The flag that differs by mode.
constexpr uint8_t kHasInt8Sinks = 8;
constexpr uint8_t kHasTrellis = 8;
// The rotation has fields beyond the ratio.
constexpr uint8_t kHasRotatedPart = 16;
constexpr uint8_t kAllFlags = 31;

constexpr size_t kRunsOffset = 7;  // of their number
constexpr size_t kRotationSize = 8;
constexpr size_t kRotatedPartSize = 8;
constexpr size_t kRunSize = 6;

template <typename T>
void Put(T value, std::string* out) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out->append(bytes, sizeof(value));
}

// Reads fields at offsets of a header, and keeps the first rule that one
// breaks.
class Fields {
 public:
  Fields(absl::string_view header, absl::Span<const uint8_t> bytes)
      : header_(header), bytes_(bytes) {}

  // REQUIRES: offset + sizeof(T) <= bytes.size().
  template <typename T>
  void Get(size_t offset, T* value) const {
    std::memcpy(value, bytes_.data() + offset, sizeof(*value));
  }
  void Require(bool holds, absl::string_view field, size_t offset,
               absl::string_view rule) {
    if (holds || !status_.ok()) return;
    status_ = absl::DataLossError(absl::StrCat(
        field, " at offset ", offset, " of ", header_, " is not ", rule));
  }
  // Reads a byte that is below `end`.
  void GetBelow(size_t end, absl::string_view field, size_t offset,
                uint8_t* value) {
    Get(offset, value);
    Require(*value < end, field, offset, absl::StrCat("below ", end));
  }
  void RequireZeros(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      Require(bytes_[i] == 0, "the byte", i, "zero");
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  const absl::string_view header_;
  const absl::Span<const uint8_t> bytes_;
  absl::Status status_;
};

void PutRotatedPart(const Rotation& rotation, std::string* out) {
  Put(rotation.first, out);
  Put(rotation.pairs, out);
  Put(rotation.shift, out);
  out->append(3, '\0');
  for (const Rotation::Run& run : rotation.runs) {
    Put(run.length, out);
    Put(run.multiplier, out);
  }
}

void ReadRotatedPart(absl::Span<const uint8_t> bytes, uint64_t channels,
                     Fields* fields, Rotation* rotation) {
  size_t at = kTensorHeaderSize + kRotationSize;
  fields->Get(at, &rotation->first);
  fields->Get(at + 2, &rotation->pairs);
  fields->Require(rotation->pairs > 0, "the number of pairs", at + 2,
                  "above 0");
  fields->Require(rotation->first + uint64_t{2} * rotation->pairs <= channels,
                  "the end of the rotated part", at,
                  "within the channels of a head");
  fields->GetBelow(kMaxRotationShift + 1, "the shift of the rotated part",
                   at + 4, &rotation->shift);
  fields->RequireZeros(at + 5, at + 8);
  at += kRotatedPartSize;
  uint64_t length = 0;
  for (size_t run = 0; run < bytes[kRunsOffset]; ++run, at += kRunSize) {
    Rotation::Run& each = rotation->runs.emplace_back();
    fields->Get(at, &each.length);
    fields->Get(at + 2, &each.multiplier);
    fields->Require(each.length > 0, "the length of a run", at, "above 0");
    length += each.length;
    fields->Require(length <= rotation->pairs, "the end of a run", at,
                    "within the rotated pairs");
  }
}

}  // namespace

void WriteTensorHeader(const TensorHeader& header, std::string* out) {
  uint8_t flags = 0;
  if (header.norms) flags |= kHasNorms;
  if (header.mode == kModeKlt) {
    if (header.trellis) flags |= kHasTrellis;
  } else if (header.int8_sinks) {
    flags |= kHasInt8Sinks;
  }
  if (header.rotation) {
    flags |= kHasRotation;
    if (header.rotation->interleaved) flags |= kIsInterleaved;
    if (!header.rotation->IsPlain()) flags |= kHasRotatedPart;
  }
  Put(header.mode, out);
  Put(flags, out);
  Put(header.sinks, out);
  Put(header.sink_shift, out);
  Put(header.recent, out);
  Put(header.recent_shift, out);
  Put(static_cast<uint8_t>(header.rotation ? header.rotation->runs.size() : 0),
      out);
  Put(header.step, out);
  if (!header.rotation) return;
  Put(header.rotation->ratio, out);
  if (flags & kHasRotatedPart) PutRotatedPart(*header.rotation, out);
}

size_t TensorHeaderSize(absl::Span<const uint8_t> bytes) {
  const uint8_t flags = bytes[1];
  if (!(flags & kHasRotation)) return kTensorHeaderSize;
  if (!(flags & kHasRotatedPart)) return kTensorHeaderSize + kRotationSize;
  return kTensorHeaderSize + kRotationSize + kRotatedPartSize +
         kRunSize * bytes[kRunsOffset];
}

absl::StatusOr<TensorHeader> ReadTensorHeader(absl::Span<const uint8_t> bytes,
                                              const Geometry& geometry) {
  Fields fields("the tensor header", bytes);
  TensorHeader header;
  header.mode = bytes[0];
  const bool klt = header.mode == kModeKlt;
  const uint8_t flags = bytes[1];
  const bool rotated = flags & kHasRotation;
  const bool interleaved = flags & kIsInterleaved;
  const bool part = flags & kHasRotatedPart;
  header.norms = flags & kHasNorms;
  header.int8_sinks = klt || (flags & kHasInt8Sinks);
  header.trellis = klt && (flags & kHasTrellis);
  fields.Require(geometry.codable(), "the mode", 0,
                 "one that a tensor of this shape can have");
  fields.Require(flags <= kAllFlags, "the flags", 1, "a set of known flags");
  fields.Require(rotated || !interleaved, "the flags", 1,
                 "consistent: interleaved without a rotation");
  fields.Require(rotated || !part, "the flags", 1,
                 "consistent: a rotated part without a rotation");
  fields.Require(!(rotated && header.norms), "the flags", 1,
                 "consistent: norms with a rotation");
  fields.Require(!rotated || part || geometry.channels() % 2 == 0, "the flags",
                 1, "consistent: a rotation of an odd number of channels");
  fields.Get(2, &header.sinks);
  fields.GetBelow(kMaxShift + 1, "the shift of sinks", 3, &header.sink_shift);
  fields.Get(4, &header.recent);
  fields.GetBelow(kMaxShift + 1, "the shift of recent tokens", 6,
                  &header.recent_shift);
  fields.RequireZeros(klt ? 3 : 7, part ? 7 : 8);
  fields.Get(8, &header.step);
  fields.Require(IsStep(header.step), "the step", 8,
                 "from 2^-100 to 2^100 with 11 significant bits");
  if (rotated) {
    header.rotation.emplace().interleaved = interleaved;
    fields.Get(kTensorHeaderSize, &header.rotation->ratio);
    if (part) {
      ReadRotatedPart(bytes, geometry.channels(), &fields, &*header.rotation);
    }
  }
  if (!fields.status().ok()) return fields.status();
  return header;
}

void WriteBlockHeader(uint8_t mode, const BlockHeader& header,
                      std::string* out) {
  const size_t end = out->size() + BlockHeaderSize(mode);
  Put(header.size, out);
  Put(header.words, out);
  Put(header.escapes, out);
  Put(header.exceptions, out);
  Put(header.norm_middle, out);
  Put(header.norm_table, out);
  Put(header.class_middle, out);
  Put(header.class_table, out);
  Put(header.mean_table, out);
  Put(header.mean_shift, out);
  if (mode == kModeKlt) {
    Put(header.offset_table, out);
    Put(header.reflector_table, out);
  }
  out->append(end - out->size(), '\0');
}

absl::StatusOr<BlockHeader> ReadBlockHeader(uint8_t mode,
                                            absl::Span<const uint8_t> bytes,
                                            uint64_t elements) {
  Fields fields("the block header", bytes);
  BlockHeader header;
  fields.Get(0, &header.size);
  fields.Get(4, &header.words);
  fields.Get(8, &header.escapes);
  fields.Get(12, &header.exceptions);
  fields.Require(header.size > BlockHeaderSize(mode) &&
                     header.size <= MaxBlockSize(elements),
                 "the size of the block", 0,
                 absl::StrCat("above ", BlockHeaderSize(mode), " and at most ",
                              MaxBlockSize(elements), " bytes"));
  fields.Get(16, &header.norm_middle);
  fields.Require(header.norm_middle < kNormEnd, "the middle of norms", 16,
                 absl::StrCat("below ", kNormEnd));
  fields.GetBelow(kTables, "the table of norms", 18, &header.norm_table);
  fields.GetBelow(kClasses, "the middle of classes", 19, &header.class_middle);
  fields.GetBelow(kTables, "the table of classes", 20, &header.class_table);
  fields.GetBelow(kTables, "the table of means", 21, &header.mean_table);
  fields.GetBelow(kMaxMeanShift + 1, "the shift of means", 22,
                  &header.mean_shift);
  if (mode == kModeKlt) {
    fields.Get(23, &header.offset_table);
    fields.Require(header.offset_table < kTables ||
                       header.offset_table == BlockHeader::kNoOffsets,
                   "the table of offsets", 23,
                   absl::StrCat("below ", kTables, " or 255 for none"));
    fields.GetBelow(kTables, "the table of reflectors", 24,
                    &header.reflector_table);
  }
  fields.RequireZeros(mode == kModeKlt ? 25 : 23, BlockHeaderSize(mode));
  if (!fields.status().ok()) return fields.status();
  return header;
}

}  // namespace kvcompress::coding
