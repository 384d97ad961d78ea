// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "coding/identity/strip_encoder.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "kernels/kernels.h"
#include "tensor/grow.h"

namespace kvcompress::coding {

StripEncoder::StripEncoder(const Geometry& geometry, const Block& block,
                           absl::Span<const Run> runs,
                           absl::Span<const uint8_t> classes,
                           SymbolWriter* writer, std::vector<int32_t>* quanta)
    : block_(block),
      channels_(geometry.channels()),
      elements_(geometry.Elements(block)),
      runs_(runs),
      writer_(*writer),
      quanta_(*quanta) {
  if (runs.empty()) return;
  const GroupLayout layout = {.channels = classes.size(),
                              .group_channels = channels_,
                              .tokens = block.tokens};
  for (size_t first = 0; first < classes.size(); first += kMaxLanes) {
    strips_.emplace_back(Strip(layout, classes, first, kMaxShiftedClass));
  }
  const size_t size = Offset(block.tokens);
  const bool full = classes.size() % kMaxLanes == 0;
  uint16_t* codes =
      writer->AddRows(strips_.size() * size / kMaxLanes, full ? kMaxLanes : 0)
          .data();
  for (size_t i = 0; i < strips_.size(); ++i, codes += size) {
    strips_[i].codes = codes;
    for (const Run& run : runs) {
      strips_[i].codings.push_back(&strips_[i].strip.At(run.offset()));
      if (strips_[i].codings.back()->low_lanes != 0) Grow(elements_, &quanta_);
    }
  }
}

void StripEncoder::Code(size_t head, size_t run, size_t begin, size_t end,
                        const int32_t* quanta) {
  for (size_t c = 0; c < channels_;) {
    const size_t channel = head * channels_ + c;
    StripCodes& strip = strips_[channel / kMaxLanes];
    const size_t lane = channel % kMaxLanes;
    const kernels::MatrixShape shape = {
        .rows = end - begin,
        .columns = std::min(kMaxLanes - lane, channels_ - c),
        .stride = channels_};
    const LaneCoding& coding = *strip.codings[run];
    if (coding.low_lanes != 0) {
      for (size_t t = begin; t < end; ++t) {
        std::copy_n(quanta + (t - begin) * channels_ + c, shape.columns,
                    &quanta_[(head * block_.tokens + t) * channels_ + c]);
      }
    } else {
      CodePart(coding, lane, begin, shape, quanta + c, &strip);
    }
    c += shape.columns;
  }
}

// Codes the lanes from `lane` on.
void StripEncoder::CodePart(const LaneCoding& coding, size_t lane, size_t begin,
                            kernels::MatrixShape shape, const int32_t* quanta,
                            StripCodes* strip) const {
  uint16_t* codes = strip->codes + Offset(begin) + lane;
  for (;;) {
    const size_t done = kernels::Active().rows.code(
        quanta, shape, coding.base + lane, coding.most + lane, codes);
    if (done == shape.rows) return;
    begin += done;
    quanta += done * shape.stride;
    codes += done * kMaxLanes;
    for (size_t i = 0; i < shape.columns; ++i) {
      const bool fits = std::abs(quanta[i]) <= coding.most[lane + i];
      codes[i] =
          CodedSymbol(coding.tables[lane + i], fits ? quanta[i] : kEscape);
      if (!fits) strip->escapes.push_back({begin, lane + i, quanta[i]});
    }
    shape.rows -= done + 1;
    ++begin;
    quanta += shape.stride;
    codes += kMaxLanes;
  }
}

void StripEncoder::Finish() {
  for (StripCodes& strip : strips_) {
    // Out of order where a strip has channels of several heads.
    std::sort(strip.escapes.begin(), strip.escapes.end(),
              [](const Escape& a, const Escape& b) {
                return std::tie(a.token, a.lane) < std::tie(b.token, b.lane);
              });
    auto escape = strip.escapes.begin();
    for (size_t r = 0; r < runs_.size(); ++r) {
      if (strip.codings[r]->low_lanes != 0) {
        CodeLowBits(strip, *strip.codings[r], runs_[r]);
      }
      for (; escape != strip.escapes.end() && escape->token < runs_[r].end;
           ++escape) {
        writer_.PutEscape(escape->quantum);
      }
    }
  }
}

void StripEncoder::CodeLowBits(const StripCodes& strip,
                               const LaneCoding& coding, const Run& run) {
  uint16_t* codes = strip.codes + Offset(run.begin);
  for (size_t t = run.begin; t < run.end; ++t, codes += kMaxLanes) {
    for (size_t lane = 0; lane < strip.strip.size(); ++lane) {
      codes[lane] =
          writer_.Code(coding.tables[lane], quanta_[strip.strip.Place(lane, t)],
                       coding.low_counts[lane]);
    }
  }
}

}  // namespace kvcompress::coding
