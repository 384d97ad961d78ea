// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Every set of kernels that this machine runs against the portable one, on any
// values and any payloads: the same faults, bytes and sums, to the last bit.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "entropy/tables.h"
#include "input.h"
#include "kernels/kernels.h"
#include "kernels/lane_sums.h"

namespace kvcompress::kernels {
namespace {

using fuzz::Input;
using fuzz::Repeat;
using fuzz::Require;

// Sums as they are in memory, so that NaN equals NaN and 0 is not -0.
bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool SameSums(const DistortionSums& a, const DistortionSums& b) {
  return a.count == b.count && SameBits(a.sum_x2, b.sum_x2) &&
         SameBits(a.sum_y2, b.sum_y2) && SameBits(a.sum_xy, b.sum_xy) &&
         SameBits(a.sum_e2, b.sum_e2) && SameBits(a.sum_abs_e, b.sum_abs_e) &&
         SameBits(a.max_abs_e, b.max_abs_e) &&
         SameBits(a.max_abs_x, b.max_abs_x);
}

uint8_t* Bytes(std::string* text) {
  return reinterpret_cast<uint8_t*>(text->data());
}
const uint8_t* Bytes(const std::string& text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

struct Block {
  int bits;
  size_t dtype;
  BlockLayout layout;
  size_t bytes() const {
    return layout.count * DTypeSize(static_cast<DType>(dtype));
  }
  size_t payload_bytes() const {
    return BlockSize(bits, layout.count, layout.group);
  }
  const GroupedKernels& Of(const KernelSet& set) const {
    return bits == 4 ? set.int4 : set.int8;
  }
};

Block DrawBlock(Input* input) {
  Block block;
  block.bits = input->Byte() % 2 == 0 ? 4 : 8;
  block.dtype = input->UpTo(kDTypes - 1);
  const size_t low = input->Byte(), high = input->Byte();
  block.layout.count = 1 + (low + 256 * high) % kBlockElements;
  block.layout.group = size_t{32} << input->UpTo(2);
  size_t rotation = size_t{1} << input->UpTo(8);
  while (block.layout.count % rotation != 0) rotation /= 2;
  block.layout.rotation = rotation;
  return block;
}

struct Encoded {
  EncodeFault fault;
  std::string payload, decoded;
  DistortionSums sums;
};

Encoded Encode(const KernelSet& set, const Block& block,
               const std::string& source, bool decode) {
  Encoded result;
  result.payload.assign(block.payload_bytes(), '\0');
  result.decoded.assign(source.size(), '\0');
  result.fault = block.Of(set).encode[block.dtype](
      Bytes(source), block.layout, Bytes(&result.payload),
      decode ? Bytes(&result.decoded) : nullptr, &result.sums);
  return result;
}

void CompareEncoders(const KernelSet& set, const Block& block,
                     const std::string& source) {
  const Encoded want = Encode(Portable(), block, source, true);
  for (const bool decode : {true, false}) {
    const Encoded got = Encode(set, block, source, decode);
    Require(got.fault.kind == want.fault.kind, "the same fault");
    if (want.fault.kind != EncodeFault::Kind::kNone) {
      Require(got.fault.element == want.fault.element, "at the same element");
      continue;
    }
    Require(got.payload == want.payload, "the same payload");
    Require(!decode || got.decoded == want.decoded, "the same decoded bytes");
    Require(SameSums(got.sums, want.sums), "the same sums");
  }
}

void CompareDecoders(const KernelSet& set, const Block& block,
                     const std::string& payload) {
  std::string want(block.bytes(), '\0'), got = want;
  const bool taken =
      block.Of(Portable())
          .decode[block.dtype](Bytes(payload), block.layout, Bytes(&want));
  Require(taken == block.Of(set).decode[block.dtype](Bytes(payload),
                                                     block.layout, Bytes(&got)),
          "the same payloads are refused");
  Require(!taken || got == want, "the same decoded bytes");
}

void CompareRows(const KernelSet& set, const Block& block,
                 const std::string& source, const std::string& decoded) {
  // What is left of a last row is not measured.
  const size_t columns = std::min<size_t>(block.layout.count, 72);
  const size_t rows = block.layout.count / columns;
  struct Outcome {
    std::vector<double> d;
    std::vector<RowSums> sums;
  };
  const auto measure = [&](const KernelSet& kernels) {
    Outcome outcome{std::vector<double>(columns), std::vector<RowSums>(rows)};
    // Any finite numbers do: those of the first row that are.
    std::vector<float> origins(columns);
    Portable().rows.load[block.dtype](Bytes(source), columns, origins.data());
    for (float& origin : origins) origin = std::isfinite(origin) ? origin : 1;
    kernels.measure[block.dtype](Bytes(source), Bytes(decoded), rows, columns,
                                 {origins.data(), outcome.d.data()},
                                 outcome.sums.data());
    return outcome;
  };
  const Outcome want = measure(Portable()), got = measure(set);
  for (size_t row = 0; row < rows; ++row) {
    Require(SameBits(got.sums[row].x2, want.sums[row].x2) &&
                SameBits(got.sums[row].e2, want.sums[row].e2) &&
                SameBits(got.sums[row].d2, want.sums[row].d2),
            "the same sums of a row");
  }
  for (size_t i = 0; i < want.d.size(); ++i) {
    Require(SameBits(got.d[i], want.d[i]), "the same sums of a channel");
  }
}

// Any words and states, under any tables.
void CompareCoders(const KernelSet& set, const std::string& bytes) {
  constexpr size_t kRows = 8;
  struct Outcome {
    size_t rows;
    const uint8_t* next;
    std::vector<uint32_t> states;
    std::vector<int8_t> symbols;
  };
  const uint8_t* const begin = Bytes(bytes);
  const uint8_t* const end = begin + bytes.size();
  uint8_t tables[kRansLanes];
  std::vector<uint32_t> states;
  for (size_t lane = 0; lane < kRansLanes; ++lane) {
    const uint8_t byte = begin[lane % bytes.size()];
    tables[lane] = byte % (coding::kNoTable + 1);
    states.push_back(kRansLowest + byte * 0x7fffffu);
  }
  const std::vector<const uint8_t*> rows(kRows, tables);
  const auto decode = [&](const KernelSet& kernels) {
    Outcome outcome = {.rows = 0,
                       .next = begin,
                       .states = states,
                       .symbols = std::vector<int8_t>(kRows * kRansLanes)};
    outcome.rows = kernels.rans.decode(
        coding::GetTables().slots[0], rows.data(), kRows, outcome.states.data(),
        &outcome.next, end, outcome.symbols.data());
    return outcome;
  };
  const Outcome want = decode(Portable()), got = decode(set);
  Require(got.rows == want.rows && got.next == want.next,
          "the same rows of the same words");
  Require(got.states == want.states && got.symbols == want.symbols,
          "the same states and symbols");
}

// Types and distortion of whole rows.
void CompareElements(const KernelSet& set, const Block& block,
                     const std::string& source) {
  const size_t count = block.layout.count;
  std::vector<float> want(count), got(count);
  // Of what is not finite only that it is not: loading makes NaNs quiet, which
  // changes their order.
  constexpr uint32_t kInfinity = 0x7f800000;
  const uint32_t largest = std::min(
      kInfinity,
      Portable().rows.load[block.dtype](Bytes(source), count, want.data()));
  Require(
      std::min(kInfinity, set.rows.load[block.dtype](Bytes(source), count,
                                                     got.data())) == largest &&
          std::min(kInfinity, set.rows.largest[block.dtype](Bytes(source),
                                                            count)) == largest,
      "the same largest value");
  Require(std::memcmp(want.data(), got.data(), count * sizeof(float)) == 0,
          "the same values");
  if (largest == kInfinity) return;
  std::string stored(source.size(), '\0'), other = stored;
  for (float& value : want) value *= 1.3f;
  Portable().rows.store[block.dtype](want.data(), count, Bytes(&stored));
  set.rows.store[block.dtype](want.data(), count, Bytes(&other));
  Require(stored == other, "the same elements");
  kernels::LaneSums sums, other_sums;
  Portable().rows.compare[block.dtype](Bytes(source), Bytes(stored), 0, count,
                                       &sums);
  set.rows.compare[block.dtype](Bytes(source), Bytes(stored), 0, count,
                                &other_sums);
  Require(SameSums(sums.Total(count), other_sums.Total(count)),
          "the same distortion");
}

std::vector<int16_t> Integers(const std::string& source, size_t count) {
  const std::string bytes = Repeat(source, count * sizeof(int16_t));
  std::vector<int16_t> integers(count);
  std::memcpy(integers.data(), bytes.data(), bytes.size());
  return integers;
}

// Products and reflections, of shapes that follow from the block: of whole
// tiles and not, and of integers of one byte and of two.
void CompareMatrices(const KernelSet& set, const Block& block,
                     const std::string& source) {
  const auto side = [](size_t number) {
    return number % 2 == 1 ? 32 * (1 + number / 2 % 4)
                           : 2 * (1 + number / 2 % 64);
  };
  const ProductShape shape = {.rows = 1 + block.layout.count % 40,
                              .inner = side(block.layout.count),
                              .columns = side(block.layout.count / 7)};
  std::vector<int16_t> left = Integers(source, shape.rows * shape.inner);
  if (block.bits == 8) {
    for (int16_t& each : left) each = static_cast<int8_t>(each);
  }
  std::vector<int16_t> right = Integers(source, shape.inner * shape.columns);
  std::vector<int32_t> product(shape.rows * shape.columns), other = product;
  Portable().multiply(left.data(), right.data(), shape, product.data());
  set.multiply(left.data(), right.data(), shape, other.data());
  Require(product == other, "the same product");
  std::vector<int16_t> unit = Integers(source, shape.inner);
  std::replace(unit.begin(), unit.end(), int16_t{-32768}, int16_t{-32767});
  std::vector<int16_t> reflected = right;
  Portable().reflect(unit.data(), shape.inner, shape.columns, reflected.data());
  set.reflect(unit.data(), shape.inner, shape.columns, right.data());
  Require(reflected == right, "the same reflection");
}

void Fuzz(Input input) {
  const Block block = DrawBlock(&input);
  const std::string source = Repeat(input.rest(), block.bytes());
  const std::string payload = Repeat(input.rest(), block.payload_bytes());
  std::string decoded(block.bytes(), '\0');
  block.Of(Portable())
      .decode[block.dtype](Bytes(payload), block.layout, Bytes(&decoded));
  for (const KernelSet* set : Available()) {
    CompareEncoders(*set, block, source);
    CompareDecoders(*set, block, payload);
    CompareRows(*set, block, source, decoded);
    CompareCoders(*set, source);
    CompareElements(*set, block, source);
    CompareMatrices(*set, block, source);
  }
}

}  // namespace
}  // namespace kvcompress::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcompress::kernels::Fuzz({data, size});
  return 0;
}
