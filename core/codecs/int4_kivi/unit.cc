// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/int4_kivi/unit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvcompress::int4_kivi {
namespace {

constexpr int kStepCodes = 256;
constexpr int kLevels = 16;
constexpr int kLeastZero = -128;
constexpr int kMaxZero = 127;

// The step of a code from 1 on: 8 to the octave, from 2^-18 * 1.125 on.
float Step(int code) {
  return std::ldexp(static_cast<float>(8 + (code & 7)), (code >> 3) - 21);
}

// REQUIRES: the result fits an int.
int Quantize(float x, float step) {
  return static_cast<int>(std::round(x / step));
}

// The elements of group `index`: first, and how many, `stride` apart.
struct Run {
  size_t first;
  size_t count;
  size_t stride;
};

Run GroupRun(UnitShape shape, size_t index) {
  if (shape.group == 0) {
    return {index, (shape.elements - index - 1) / shape.channels + 1,
            shape.channels};
  }
  const size_t in_token = (shape.channels - 1) / shape.group + 1;
  const size_t token = index / in_token * shape.channels;
  const size_t first = token + index % in_token * shape.group;
  const size_t end = std::min(token + shape.channels, shape.elements);
  return {first, std::min(shape.group, end - first), 1};
}

// The smallest step that reaches from `low` to `high` with all levels, from a
// zero point within its range; 0 where the smallest of all makes zeros of both,
// kStepCodes where none does.
int ChooseStep(float low, float high) {
  if (std::round(low / Step(1)) == 0 && std::round(high / Step(1)) == 0) {
    return 0;
  }
  // No step below this one can hold them; it spares most of the search.
  const double least =
      std::max((static_cast<double>(high) - low) / (kLevels + 0.01),
               std::abs(static_cast<double>(low)) / (1 - kLeastZero));
  const int octave = std::max(std::ilogb(least), -18);
  for (int code = std::max(1, 8 * (octave + 18)); code < kStepCodes; ++code) {
    const float step = Step(code);
    if (step < least) continue;
    const int zero = Quantize(low, step);
    if (zero >= kLeastZero && zero <= kMaxZero &&
        Quantize(high, step) - zero < kLevels) {
      return code;
    }
  }
  return kStepCodes;
}

}  // namespace

size_t UnitShape::Groups() const {
  if (elements == 0) return 0;
  if (group == 0) return std::min(channels, elements);
  const size_t in_token = (channels - 1) / group + 1;
  const size_t rest = elements % channels;
  return elements / channels * in_token + (rest + group - 1) / group;
}

std::optional<size_t> EncodeUnit(UnitShape shape, absl::Span<float> values,
                                 uint8_t* payload) {
  const size_t groups = shape.Groups();
  uint8_t* const codes = payload + 2 * groups;
  const size_t half = (shape.elements + 1) / 2;
  std::memset(codes, 0, half);
  for (size_t g = 0; g < groups; ++g) {
    const Run run = GroupRun(shape, g);
    const size_t end = run.first + run.count * run.stride;
    size_t low = run.first;
    size_t high = run.first;
    for (size_t i = run.first; i < end; i += run.stride) {
      if (values[i] < values[low]) low = i;
      if (values[i] > values[high]) high = i;
    }
    const int step_code = ChooseStep(values[low], values[high]);
    if (step_code == kStepCodes) {
      return std::abs(values[low]) > std::abs(values[high]) ? low : high;
    }
    const float step = step_code == 0 ? 0 : Step(step_code);
    const int zero = step_code == 0 ? 0 : Quantize(values[low], step);
    payload[g] = static_cast<uint8_t>(step_code);
    payload[groups + g] = static_cast<uint8_t>(zero);
    for (size_t i = run.first; i < end; i += run.stride) {
      const int level = step_code == 0 ? 0 : Quantize(values[i], step);
      codes[i % half] |=
          static_cast<uint8_t>((level - zero) << (i < half ? 0 : 4));
      values[i] = static_cast<float>(level) * step;
    }
  }
  return std::nullopt;
}

absl::Status DecodeUnit(UnitShape shape, const uint8_t* payload,
                        absl::Span<float> values) {
  const size_t groups = shape.Groups();
  const uint8_t* const codes = payload + 2 * groups;
  const size_t half = (shape.elements + 1) / 2;
  if (shape.elements % 2 != 0 && codes[half - 1] >> 4 != 0) {
    return absl::DataLossError("the unused half of the last byte is not zero");
  }
  for (size_t g = 0; g < groups; ++g) {
    const Run run = GroupRun(shape, g);
    const size_t end = run.first + run.count * run.stride;
    const int zero = static_cast<int8_t>(payload[groups + g]);
    const bool nothing = payload[g] == 0;
    const float step = nothing ? 0 : Step(payload[g]);
    int used = nothing ? zero : 0;
    for (size_t i = run.first; i < end; i += run.stride) {
      const int code = codes[i % half] >> (i < half ? 0 : 4) & 15;
      if (nothing) used |= code;
      values[i] = static_cast<float>(code + zero) * step;
    }
    if (used != 0) {
      return absl::DataLossError(
          absl::StrCat("group ", g, " has no step, but a zero point or codes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace kvcompress::int4_kivi
