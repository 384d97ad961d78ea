// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Kernels and codecs behind a C interface, for tests/benchmark. Types are the
// numbers of DType; functions that can fail give 0 or a negative number.

#include "kernels/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "entropy/rans.h"
#include "entropy/tables.h"
#include "kvcompress/codec.h"
#include "kvcompress/kernels.h"

namespace {

using kvcompress::kernels::BlockLayout;
using kvcompress::kernels::BlockSize;
using kvcompress::kernels::EncodeFault;
using kvcompress::kernels::GroupedKernels;
using kvcompress::kernels::kBlockElements;

const GroupedKernels& Kernels(int bits) {
  const kvcompress::kernels::KernelSet& set = kvcompress::kernels::Active();
  return bits == 4 ? set.int4 : set.int8;
}

kvcompress::TensorSpec Spec(int dtype, int role, uint64_t heads,
                            uint64_t tokens, uint64_t elements) {
  constexpr uint64_t kChannels = 64;
  return {.name = "benchmark",
          .dtype = static_cast<kvcompress::DType>(dtype),
          .shape = {elements / (heads * tokens * kChannels), heads, tokens,
                    kChannels},
          .role = static_cast<kvcompress::TensorRole>(role)};
}

constexpr size_t kStateBytes = 4 * kvcompress::coding::kMaxLanes;

}  // namespace

extern "C" {

// Names of the sets, the fastest first, with commas between them.
const char* kvb_sets() {
  static const std::string* const names = [] {
    kvcompress::AllowTiles();
    auto* const text = new std::string;
    for (const auto* set : kvcompress::kernels::Available()) {
      absl::StrAppend(text, text->empty() ? "" : ",", set->name);
    }
    return text;
  }();
  return names->c_str();
}

int kvb_select(const char* name) {
  return kvcompress::SelectKernels(name).ok() ? 1 : 0;
}

// Adds up all words: reads memory and does little else.
uint64_t kvb_read(const uint64_t* words, size_t count) {
  uint64_t sums[16] = {};
  for (size_t i = 0; i + 16 <= count; i += 16) {
    for (size_t j = 0; j < 16; ++j) sums[j] += words[i + j];
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all += sum;
  return all;
}

// Encodes whole blocks in groups of 64; also measures. Bytes of the payload.
int64_t kvb_encode(int bits, int dtype, size_t rotation, const uint8_t* source,
                   size_t count, uint8_t* payload) {
  const auto kernel = Kernels(bits).encode[dtype];
  const size_t size =
      kvcompress::DTypeSize(static_cast<kvcompress::DType>(dtype));
  const uint8_t* const begin = payload;
  kvcompress::DistortionAccumulator distortion;
  for (size_t i = 0; i < count; i += kBlockElements) {
    const BlockLayout layout = {.count = std::min(kBlockElements, count - i),
                                .rotation = rotation};
    kvcompress::DistortionSums sums;
    if (kernel(source + i * size, layout, payload, nullptr, &sums).kind !=
        EncodeFault::Kind::kNone) {
      return -1;
    }
    distortion.Add(sums);
    payload += BlockSize(bits, layout.count, layout.group);
  }
  return payload - begin;
}

int kvb_decode(int bits, int dtype, size_t rotation, const uint8_t* payload,
               size_t count, uint8_t* decoded) {
  const auto kernel = Kernels(bits).decode[dtype];
  const size_t size =
      kvcompress::DTypeSize(static_cast<kvcompress::DType>(dtype));
  for (size_t i = 0; i < count; i += kBlockElements) {
    const BlockLayout layout = {.count = std::min(kBlockElements, count - i),
                                .rotation = rotation};
    if (!kernel(payload, layout, decoded + i * size)) return 0;
    payload += BlockSize(bits, layout.count, layout.group);
  }
  return 1;
}

// Encodes one tensor [n, heads, tokens, 64] of the role (0 none, 1 key, 2
// value) with the codec of that manifest field. Bytes of the payload.
int64_t kvb_codec_encode(const char* codec, int dtype, int role, uint64_t heads,
                         uint64_t tokens, const char* source, uint64_t elements,
                         char* payload, uint64_t room) {
  const auto spec = kvcompress::ParseCodec(codec);
  if (!spec.ok()) return -1;
  const kvcompress::TensorSpec tensor =
      Spec(dtype, role, heads, tokens, elements);
  // As for all tensors of a stream but the first.
  static auto* const buffers = new kvcompress::EncoderBuffers;
  auto encoder =
      spec->codec->NewEncoder(tensor, spec->parameters, {.buffers = buffers});
  if (!encoder.ok()) return -1;
  const uint64_t size = elements * kvcompress::DTypeSize(tensor.dtype);
  std::string out;
  if (!(*encoder)->Append({source, size}, &out, nullptr).ok() ||
      !(*encoder)->Finish(&out, nullptr).ok() || out.size() > room) {
    return -1;
  }
  std::memcpy(payload, out.data(), out.size());
  return static_cast<int64_t>(out.size());
}

int kvb_codec_decode(const char* codec, int dtype, int role, uint64_t heads,
                     uint64_t tokens, const char* payload, uint64_t size,
                     uint64_t elements) {
  const auto spec = kvcompress::ParseCodec(codec);
  if (!spec.ok()) return 0;
  const kvcompress::TensorSpec tensor =
      Spec(dtype, role, heads, tokens, elements);
  auto decoder = spec->codec->NewDecoder(tensor, spec->parameters);
  if (!decoder.ok()) return 0;
  absl::string_view left(payload, size);
  std::string out;
  for (bool more = true; more; out.clear()) {
    // Messages of a server are of that size.
    const absl::StatusOr<bool> step = (*decoder)->Decode(&left, 1 << 20, &out);
    if (!step.ok()) return 0;
    more = *step;
  }
  return (*decoder)->Finish().ok() ? 1 : 0;
}

// The entropy coder of ecsq alone: codes symbols under one table, a multiple of
// 32 of them. Bytes of states and words.
int64_t kvb_rans_encode(size_t table, const int8_t* symbols, size_t count,
                        uint8_t* coded, size_t room) {
  static auto* const rows = new std::vector<uint16_t>;
  static auto* const words = new std::vector<uint16_t>;
  rows->resize(count);
  for (size_t i = 0; i < count; ++i) {
    (*rows)[i] = kvcompress::coding::CodedSymbol(table, symbols[i]);
  }
  const kvcompress::coding::RansStream stream = kvcompress::coding::RansEncode(
      *rows, kvcompress::coding::kMaxLanes, words);
  const size_t size = kStateBytes + 2 * stream.words.size();
  if (size > room) return -1;
  std::memcpy(coded, stream.states.data(), kStateBytes);
  std::memcpy(coded + kStateBytes, stream.words.data(),
              2 * stream.words.size());
  return static_cast<int64_t>(size);
}

int kvb_rans_decode(size_t table, const uint8_t* coded, size_t size,
                    int8_t* symbols, size_t count) {
  using kvcompress::coding::kMaxLanes;
  uint8_t lanes[kMaxLanes];
  std::fill_n(lanes, kMaxLanes, static_cast<uint8_t>(table));
  const std::vector<const uint8_t*> tables(count / kMaxLanes, lanes);
  kvcompress::coding::RansDecoder decoder(
      {coded, kStateBytes}, {coded + kStateBytes, size - kStateBytes});
  return decoder.valid() && decoder.ReadRows(tables, {symbols, count}) &&
                 decoder.AtEnd()
             ? 1
             : 0;
}

}  // extern "C"
