// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/block_writer.h"

#include <numeric>

#include "entropy/rans.h"

namespace kvcompress::coding {
namespace {

absl::string_view AsBytes(const void* values, size_t size) {
  return {static_cast<const char*>(values), size};
}

int32_t MeanOf(const std::vector<int32_t>& values) {
  const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
  const int64_t count = static_cast<int64_t>(values.size());
  return static_cast<int32_t>((sum + count / 2) / count);
}

// The shift that codes means in the fewest bits.
int MeanShift(const std::vector<int32_t>& means) {
  int shift = 0;
  for (uint64_t cost = FitTable(means, 0, 0).cost; shift < kMaxMeanShift;
       ++shift) {
    const uint64_t next = FitTable(means, 0, shift + 1).cost;
    if (next >= cost) break;
    cost = next;
  }
  return shift;
}

}  // namespace

BlockWriter::BlockWriter(const TensorHeader& header, const Geometry& geometry,
                         const Block& block, std::vector<uint16_t>* symbols)
    : header_(header),
      elements_(geometry.Elements(block)),
      lanes_(geometry.Lanes(block)),
      symbols_(symbols) {}

uint8_t BlockWriter::PutSymbols(std::vector<int32_t> values, int32_t middle,
                                int shift) {
  const TableFit fit = FitTable(values, middle, shift);
  for (int32_t& value : values) value = (value - middle) >> shift;
  symbols_.PutRows(values, fit.table, lanes_);
  return static_cast<uint8_t>(fit.table);
}

void BlockWriter::PutSideData(const BlockContent& content) {
  const std::vector<int32_t> classes(content.classes.begin(),
                                     content.classes.end());
  sizes_.class_middle = static_cast<uint8_t>(MeanOf(classes));
  sizes_.class_table = PutSymbols(classes, sizes_.class_middle, 0);
  const int shift = MeanShift(content.means);
  sizes_.mean_shift = static_cast<uint8_t>(shift);
  sizes_.mean_table = PutSymbols(content.means, 0, shift);
  for (const int32_t mean : content.means) symbols_.PutLowBits(mean, shift);
  if (!header_.norms) return;
  const std::vector<int32_t> norms(content.norms.begin(), content.norms.end());
  sizes_.norm_middle = static_cast<uint16_t>(MeanOf(norms));
  sizes_.norm_table = PutSymbols(norms, sizes_.norm_middle, 0);
}

bool BlockWriter::Finish(absl::string_view counts, const BlockContent& content,
                         absl::string_view exceptions,
                         std::vector<uint16_t>* words, std::string* payload) {
  symbols_.Finish();
  const RansStream stream = RansEncode(symbols_.rows(), lanes_, words);
  const absl::string_view sections[] = {
      counts,
      AsBytes(stream.states.data(), 4 * stream.states.size()),
      AsBytes(stream.words.data(), 2 * stream.words.size()),
      symbols_.escapes(),
      AsBytes(content.sink_scales.data(), 2 * content.sink_scales.size()),
      AsBytes(content.sink_codes.data(), content.sink_codes.size()),
      exceptions,
      symbols_.low_bits()};
  uint64_t size = BlockHeaderSize(header_.mode);
  for (const absl::string_view section : sections) size += section.size();
  if (size > MaxBlockSize(elements_)) return false;
  sizes_.size = static_cast<uint32_t>(size);
  sizes_.words = static_cast<uint32_t>(stream.words.size());
  sizes_.escapes = static_cast<uint32_t>(symbols_.escapes().size());
  sizes_.exceptions = static_cast<uint32_t>(exceptions.size());
  WriteBlockHeader(header_.mode, sizes_, payload);
  for (const absl::string_view section : sections) {
    payload->append(section.data(), section.size());
  }
  return true;
}

}  // namespace kvcompress::coding
