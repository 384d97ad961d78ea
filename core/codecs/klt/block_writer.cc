// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/klt/block_writer.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "coding/block_writer.h"
#include "coding/strip.h"
#include "entropy/tables.h"
#include "kernels/kernels.h"
#include "quantization/trellis.h"

namespace kvcompress::klt {
namespace {

using coding::BlockWriter;
using coding::LaneCoding;
using coding::Strip;
using coding::TensorHeader;

uint8_t ReflectorClass(absl::Span<const int32_t> integers) {
  double squares = 0;
  for (const int32_t k : integers) squares += static_cast<double>(k) * k;
  return static_cast<uint8_t>(
      coding::ClassOf(squares / static_cast<double>(integers.size())));
}

void PutReflectors(absl::Span<const coding::Reflectors> groups,
                   BlockWriter* writer) {
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
  writer->header().reflector_table = writer->PutSymbols(differences, 0, 0);
  auto klass = classes.begin();
  size_t lane = 0;
  for (const coding::Reflectors& reflectors : groups) {
    for (size_t j = 0; j < reflectors.count(); ++j) {
      const coding::SplitClass split(*klass++);
      for (const int32_t k : reflectors.Get(j)) {
        writer->symbols().Put(lane, split.table, k, split.low_bits);
        lane = lane + 1 == writer->lanes() ? 0 : lane + 1;
      }
    }
  }
}

void PutOffsets(const std::vector<int8_t>& offsets, BlockWriter* writer) {
  std::vector<int32_t> differences;
  for (size_t t = 0; t < offsets.size(); ++t) {
    differences.push_back(offsets[t] - (t == 0 ? 0 : offsets[t - 1]));
  }
  if (std::any_of(differences.begin(), differences.end(),
                  [](int32_t difference) { return difference != 0; })) {
    writer->header().offset_table = writer->PutSymbols(differences, 0, 0);
  }
}

void PutStrip(const TensorHeader& header, const Block& block,
              const BlockContent& content, const int32_t* levels, Strip* strip,
              coding::SymbolWriter* writer) {
  const size_t sinks = header.Int8Sinks(block);
  const auto code = kernels::Active().rows.code;
  uint16_t* row = writer->AddRows(block.tokens - sinks, strip->size()).data();
  uint8_t states[coding::kMaxLanes] = {};
  size_t end = sinks;  // of tokens that are coded alike
  for (size_t t = sinks; t < block.tokens;) {
    const int8_t offset = content.offsets[t];
    for (; end <= t || (end < block.tokens && content.offsets[end] == offset);
         ++end) {
    }
    const LaneCoding& at = strip->At(offset);
    if (!header.trellis && strip->is_run() && at.low_lanes == 0) {
      const size_t done = code(&levels[strip->Place(0, t)],
                               {.rows = end - t,
                                .columns = strip->size(),
                                .stride = strip->stride()},
                               at.base, at.most, row);
      t += done;
      row += done * coding::kMaxLanes;
      if (done > 0) continue;
    }
    for (size_t lane = 0; lane < strip->size(); ++lane) {
      int32_t quantum = levels[strip->Place(lane, t)];
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
               const int32_t* levels, Checkpoint* checkpoint,
               coding::SymbolWriter* writer) {
  for (size_t first = 0; first < geometry.Channels(block);
       first += coding::kMaxLanes) {
    if (Stops(checkpoint)) return;
    Strip strip(geometry.Layout(block), content.classes, first, kMaxClass);
    PutStrip(header, block, content, levels, &strip, writer);
  }
}

}  // namespace

bool WriteBlock(const TensorHeader& header, const Geometry& geometry,
                const Block& block, const BlockContent& content,
                const int32_t* levels,
                absl::Span<const coding::Reflectors> bases,
                absl::string_view exceptions, std::vector<uint16_t>* symbols,
                std::vector<uint16_t>* words, Checkpoint* checkpoint,
                std::string* payload) {
  BlockWriter writer(header, geometry, block, symbols);
  writer.PutSideData(content);
  PutOffsets(content.offsets, &writer);
  PutReflectors(bases, &writer);
  PutLevels(header, geometry, block, content, levels, checkpoint,
            &writer.symbols());
  if (Stops(checkpoint)) return false;
  std::string counts;
  if (bases.empty()) {
    counts.assign(geometry.Groups(block), static_cast<char>(kSameBasis));
  }
  for (const coding::Reflectors& reflectors : bases) {
    counts.push_back(static_cast<char>(reflectors.count()));
  }
  return writer.Finish(counts, content, exceptions, words, payload);
}

}  // namespace kvcompress::klt
