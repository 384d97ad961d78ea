// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/block_writer.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "codecs/klt/strip.h"
#include "coding/format.h"
#include "entropy/rans.h"
#include "entropy/symbol_writer.h"
#include "entropy/tables.h"
#include "kernels/kernels.h"
#include "quantization/trellis.h"

namespace kvcompress::klt {
namespace {

using coding::SplitClass;

void PutBytes(const void* bytes, size_t size, std::string* out) {
  out->append(static_cast<const char*>(bytes), size);
}

// Codes numbers under the table that suits them best; gives the table.
uint8_t PutSymbols(std::vector<int32_t> values, int32_t middle, int shift,
                   size_t lanes, coding::SymbolWriter* writer) {
  const coding::TableFit fit = coding::FitTable(values, middle, shift);
  for (int32_t& value : values) value = (value - middle) >> shift;
  writer->PutRows(values, fit.table, lanes);
  return static_cast<uint8_t>(fit.table);
}

int32_t MeanOf(absl::Span<const int32_t> values) {
  int64_t sum = 0;
  for (const int32_t value : values) sum += value;
  const int64_t count = static_cast<int64_t>(values.size());
  return static_cast<int32_t>((sum + count / 2) / count);
}

uint8_t ReflectorClass(absl::Span<const int32_t> integers) {
  double squares = 0;
  for (const int32_t k : integers) squares += static_cast<double>(k) * k;
  return static_cast<uint8_t>(
      coding::ClassOf(squares / static_cast<double>(integers.size())));
}

void PutReflectors(absl::Span<const coding::Reflectors> groups, size_t lanes,
                   coding::SymbolWriter* writer, BlockHeader* sizes) {
  std::vector<uint8_t> classes;
  std::vector<int32_t> differences;
  for (const coding::Reflectors& reflectors : groups) {
    int before = kFirstReflectorClass;
    for (size_t j = 0; j < reflectors.count(); ++j) {
      classes.push_back(ReflectorClass(reflectors.Get(j)));
      differences.push_back(classes.back() - before);
      before = classes.back();
    }
  }
  if (differences.empty()) return;
  sizes->reflector_table = PutSymbols(differences, 0, 0, lanes, writer);
  auto klass = classes.begin();
  size_t lane = 0;
  for (const coding::Reflectors& reflectors : groups) {
    for (size_t j = 0; j < reflectors.count(); ++j) {
      const SplitClass split(*klass++);
      for (const int32_t k : reflectors.Get(j)) {
        writer->Put(lane, split.table, k, split.low_bits);
        lane = lane + 1 == lanes ? 0 : lane + 1;
      }
    }
  }
}

void PutMeans(const std::vector<int32_t>& means, size_t lanes,
              coding::SymbolWriter* writer, BlockHeader* sizes) {
  int shift = 0;
  for (uint64_t cost = coding::FitTable(means, 0, 0).cost;
       shift < coding::kMaxMeanShift; ++shift) {
    const uint64_t next = coding::FitTable(means, 0, shift + 1).cost;
    if (next >= cost) break;
    cost = next;
  }
  sizes->mean_shift = static_cast<uint8_t>(shift);
  sizes->mean_table = PutSymbols(means, 0, shift, lanes, writer);
  for (const int32_t mean : means) writer->PutLowBits(mean, shift);
}

void PutOffsets(const std::vector<int8_t>& offsets, size_t lanes,
                coding::SymbolWriter* writer, BlockHeader* sizes) {
  std::vector<int32_t> differences;
  for (size_t t = 0; t < offsets.size(); ++t) {
    differences.push_back(offsets[t] - (t == 0 ? 0 : offsets[t - 1]));
  }
  if (std::any_of(differences.begin(), differences.end(),
                  [](int32_t difference) { return difference != 0; })) {
    sizes->offset_table = PutSymbols(differences, 0, 0, lanes, writer);
  }
}

void PutStrip(const TensorHeader& header, const Block& block,
              const BlockContent& content, Strip* strip,
              coding::SymbolWriter* writer) {
  const size_t sinks = header.Sinks(block);
  const auto code = kernels::Active().rows.code;
  uint16_t* row = writer->AddRows(block.tokens - sinks, strip->count()).data();
  uint8_t states[coding::kMaxLanes] = {};
  size_t end = sinks;  // of tokens that are coded alike
  for (size_t t = sinks; t < block.tokens;) {
    const int8_t offset = content.offsets[t];
    for (; end <= t || (end < block.tokens && content.offsets[end] == offset);
         ++end) {
    }
    const LaneTables& at = strip->At(offset);
    if (!header.trellis && strip->is_run() && at.low_lanes == 0) {
      const size_t done = code(&content.levels[strip->Place(0, t)],
                               {.rows = end - t,
                                .columns = strip->count(),
                                .stride = strip->stride()},
                               at.base, at.most, row);
      t += done;
      row += done * coding::kMaxLanes;
      if (done > 0) continue;
    }
    for (size_t lane = 0; lane < strip->count(); ++lane) {
      int32_t quantum = content.levels[strip->Place(lane, t)];
      const bool odd = coding::IsOddState(states[lane]);
      if (header.trellis) {
        quantum = coding::QuantumOf(quantum, odd);
        states[lane] = coding::NextState(states[lane], quantum);
      }
      row[lane] =
          writer->Code(at.Table(lane, odd), quantum, at.low_counts[lane]);
    }
    ++t;
    row += coding::kMaxLanes;
  }
}

void PutLevels(const TensorHeader& header, const Geometry& geometry,
               const Block& block, const BlockContent& content,
               Checkpoint* checkpoint, coding::SymbolWriter* writer) {
  for (size_t first = 0; first < geometry.Channels(block);
       first += coding::kMaxLanes) {
    if (Stops(checkpoint)) return;
    Strip strip(geometry, block, content, first);
    PutStrip(header, block, content, &strip, writer);
  }
}

}  // namespace

bool WriteBlock(const TensorHeader& header, const Geometry& geometry,
                const Block& block, const BlockContent& content,
                absl::Span<const coding::Reflectors> bases,
                absl::string_view exceptions, std::vector<uint16_t>* symbols,
                std::vector<uint16_t>* words, Checkpoint* checkpoint,
                std::string* payload) {
  const size_t channels = geometry.Channels(block);
  const size_t lanes = std::min(coding::kMaxLanes, channels);
  BlockHeader sizes;
  coding::SymbolWriter writer(symbols);
  const std::vector<int32_t> classes(content.classes.begin(),
                                     content.classes.end());
  sizes.class_middle = static_cast<uint8_t>(MeanOf(classes));
  sizes.class_table =
      PutSymbols(classes, sizes.class_middle, 0, lanes, &writer);
  PutMeans(content.means, lanes, &writer, &sizes);
  if (header.norms) {
    const std::vector<int32_t> norms(content.norms.begin(),
                                     content.norms.end());
    sizes.norm_middle = static_cast<uint16_t>(MeanOf(norms));
    sizes.norm_table = PutSymbols(norms, sizes.norm_middle, 0, lanes, &writer);
  }
  PutOffsets(content.offsets, lanes, &writer, &sizes);
  PutReflectors(bases, lanes, &writer, &sizes);
  PutLevels(header, geometry, block, content, checkpoint, &writer);
  if (Stops(checkpoint)) return false;
  writer.Finish();
  const coding::RansStream stream =
      coding::RansEncode(writer.rows(), lanes, words);

  const size_t groups = geometry.Groups(block);
  const uint64_t size = kBlockHeaderSize + groups + 4 * stream.states.size() +
                        2 * stream.words.size() + writer.escapes().size() +
                        2 * content.sink_scales.size() +
                        content.sink_codes.size() + exceptions.size() +
                        writer.low_bits().size();
  if (size > MaxBlockSize(geometry.Elements(block))) return false;
  sizes.size = static_cast<uint32_t>(size);
  sizes.words = static_cast<uint32_t>(stream.words.size());
  sizes.escapes = static_cast<uint32_t>(writer.escapes().size());
  sizes.exceptions = static_cast<uint32_t>(exceptions.size());
  WriteBlockHeader(sizes, payload);
  if (bases.empty()) payload->append(groups, static_cast<char>(kSameBasis));
  for (const coding::Reflectors& reflectors : bases) {
    payload->push_back(static_cast<char>(reflectors.count()));
  }
  PutBytes(stream.states.data(), 4 * stream.states.size(), payload);
  PutBytes(stream.words.data(), 2 * stream.words.size(), payload);
  payload->append(writer.escapes());
  PutBytes(content.sink_scales.data(), 2 * content.sink_scales.size(), payload);
  PutBytes(content.sink_codes.data(), content.sink_codes.size(), payload);
  payload->append(exceptions.data(), exceptions.size());
  payload->append(writer.low_bits());
  return true;
}

}  // namespace kvcompress::klt
