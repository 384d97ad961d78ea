// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "entropy/escapes.h"

#include <cstdlib>
#include <cstring>

#include "kernels/rows.h"

namespace kvcompress::coding {
namespace {

bool FitsTwoBytes(int32_t value) {
  return value > INT16_MIN && value <= INT16_MAX;
}

template <typename T>
void AppendValue(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

void PutEscape(int32_t value, std::string* escapes) {
  const bool fits = FitsTwoBytes(value);
  AppendValue(static_cast<int16_t>(fits ? value : INT16_MIN), escapes);
  if (!fits) AppendValue(value, escapes);
}

bool Escapes::Next(int32_t* value) {
  int16_t two;
  if (!Take(&two)) return false;
  *value = two;
  if (two != INT16_MIN) return true;
  return Take(value) && *value >= -kernels::kMaxQuantum &&
         *value <= kernels::kMaxQuantum && !FitsTwoBytes(*value);
}

template <typename T>
bool Escapes::Take(T* value) {
  if (left_.size() < sizeof(*value)) return false;
  std::memcpy(value, left_.data(), sizeof(*value));
  left_.remove_prefix(sizeof(*value));
  return true;
}

}  // namespace kvcompress::coding
