// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The headers of a group's payload, and what its size is bounded by. Specified
// in core/FORMAT.md, "klt-profile". Internal to the library.

#ifndef KVCOMPRESS_PROFILE_GROUP_FORMAT_H_
#define KVCOMPRESS_PROFILE_GROUP_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "entropy/rans.h"
#include "kvcompress/dtype.h"
#include "kvcompress/profile.h"
#include "kvcompress/tensor.h"

namespace kvcompress::profile {

// The tensors of a group as a cache has them: each [batches, heads, tokens,
// channels], in the order of the profile.
struct GroupShape {
  uint64_t batches = 0;
  uint64_t tokens = 0;
  std::vector<DType> dtypes;
  bool exact = false;  // of lossless-profile: every bit is kept
};

// Whether a tensor of this spec can be the member: of numbers, of three or
// four dimensions, with the member's heads and channels. Sets `batches` and
// `tokens` of `*shape`.
bool Fits(const ProfileTensor& member, const TensorSpec& spec,
          GroupShape* shape);

inline constexpr size_t kGroupHeaderSize = 32;
inline constexpr size_t kGroupBlockHeaderSize = 16;
inline constexpr size_t kStatesSize = coding::kMaxLanes * sizeof(uint32_t);
inline constexpr uint64_t kMaxPosition = uint64_t{1} << 32;
inline constexpr size_t kOffsetRunSize = 3;  // a count and an offset

struct GroupHeader {
  bool exact_sinks = false;     // sinks are elements as in the source
  bool units = false;           // tensors have units of their own
  bool exceptions = false;      // some elements are as in the source
  bool trellis = false;         // quanta follow the states of a trellis
  bool residuals = false;       // elements become those of the source
  uint16_t group = 0;           // of the profile
  uint8_t preset = 0;           // whose classes are used
  int8_t shift = 0;             // of all classes
  uint8_t sinks = 0;            // first tokens that are not transformed
  uint64_t first_position = 0;  // of token 0
  float step = 1;
  uint16_t block_tokens = kMaxBlockTokens;
  uint32_t offset_bytes = 0;
  uint32_t exception_bytes = 0;  // 0 without exceptions
};

void WriteGroupHeader(const GroupHeader& header, std::string* out);
// Sets in the header of a payload that exceptions of so many bytes follow.
void MarkExceptions(uint32_t bytes, std::string* payload);
// Sets in the header of a payload that residuals follow.
void MarkResiduals(std::string* payload);
// DATA_LOSS says which field breaks a rule, and its offset. REQUIRES:
// kGroupHeaderSize bytes.
absl::StatusOr<GroupHeader> ReadGroupHeader(absl::Span<const uint8_t> bytes,
                                            const ProfileContent& content,
                                            const GroupShape& shape);

struct GroupBlockHeader {
  uint32_t size = 0;  // of the block, this header included
  uint32_t words = 0;
  uint32_t escapes = 0;  // bytes
  uint16_t runs = 0;     // of components that are coded
};

void WriteGroupBlockHeader(const GroupBlockHeader& header, std::string* out);
// DATA_LOSS says which field breaks a rule; the caller adds the block and its
// offset. REQUIRES: kGroupBlockHeaderSize bytes.
absl::StatusOr<GroupBlockHeader> ReadGroupBlockHeader(
    absl::Span<const uint8_t> bytes, size_t components);

// Appends numbers as they are in memory.
template <typename T>
void AppendNumbers(absl::Span<const T> numbers, std::string* out) {
  out->append(reinterpret_cast<const char*>(numbers.data()),
              numbers.size() * sizeof(T));
}

// Whether this can be the unit of a tensor: 2^-32 to 2^32, 11 significant bits.
bool IsUnit(float unit);
// `value` within those bounds, rounded to 11 bits.
float RoundToUnit(double value);

// The shift of the classes that goes with steps of `unit` times the preset's.
int8_t ShiftOf(double unit);

// The class of a component at tokens of an offset.
int ClassAt(uint8_t klass, int shift, int offset);

// What each tensor of a group adds to the bound of the group's payload.
constexpr uint64_t GroupPayloadBound(uint64_t elements) {
  return 16 * elements + 65536;
}

}  // namespace kvcompress::profile

#endif  // KVCOMPRESS_PROFILE_GROUP_FORMAT_H_
