// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "layout/suspicion.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/elements.h"
#include "kvcompress/dtype.h"
#include "kvcompress/layout_guess.h"
#include "tensor/dot.h"

namespace kvcompress {
namespace {

// More channels than a head of any model has.
constexpr uint64_t kMaxChannels = 256;
// A latent of DeepSeek's models, 512 channels, with its rotated part, 64.
constexpr uint64_t kLatentChannels = 576;
constexpr uint64_t kLargestPage = 128;  // tokens
constexpr double kMargin = 0.02;
// Rows so alike are no accident, whatever the tensor is called.
constexpr double kAlike = 0.2;

// A mean of cosines between rows of so many channels.
class Cosines {
 public:
  explicit Cosines(uint64_t channels) : channels_(channels) {}

  void Add(float dot, float x2, float y2) {
    const double cosine = dot / std::sqrt(double{x2} * y2);
    if (!std::isfinite(cosine)) return;
    sum_ += cosine;
    ++count_;
  }
  double mean() const {
    return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
  }
  // What chance makes of it, where the rows are unrelated. Those of a cache
  // spread over few dimensions, whatever their length.
  double chance() const {
    const auto directions =
        static_cast<double>(std::min<uint64_t>(channels_, 64)) / 4;
    return 2.5 / std::sqrt(directions * static_cast<double>(count_ + 1));
  }
  bool any() const { return count_ > 0; }

  // Whether this is more than `other`, and no accident.
  bool Beats(const Cosines& other) const {
    return any() && mean() > std::max(other.mean(), 0.0) + kMargin +
                                 std::max(chance(), other.chance());
  }

 private:
  uint64_t channels_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

}  // namespace

struct LayoutSample::Alikeness {
  explicit Alikeness(uint64_t channels)
      : along{Cosines(channels), Cosines(channels), Cosines(channels)},
        joins(channels),
        ends(channels),
        halves(channels) {}

  std::array<Cosines, 3> along;  // neighbours along each dimension but the last
  Cosines joins;                 // the end of one block of c, and the next
  Cosines ends;                  // the beginning and the end of such a block
  Cosines halves;                // both sides of the middle of such a block
};

bool LayoutSample::Applies(const TensorSpec& spec) {
  constexpr uint64_t kFewestRows = 32;
  constexpr uint64_t kFewestChannels = 16;
  if (!IsNumber(spec.dtype) || spec.shape.size() < 2) return false;
  const uint64_t channels = spec.shape.back();
  if (channels < kFewestChannels || channels > kMaxElements / 8) return false;
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < spec.shape.size(); ++i) {
    if (spec.shape[i] == 0) return false;
    if (rows < kFewestRows) rows *= spec.shape[i];
  }
  return rows >= kFewestRows;
}

uint64_t LayoutSample::MemoryFor(const TensorSpec& spec) {
  uint64_t elements = 1;
  for (const uint64_t each : spec.shape) {
    if (elements <= kMaxElements) elements *= std::min(each, kMaxElements);
  }
  return DTypeSize(spec.dtype) * std::min(elements, kMaxElements);
}

LayoutSample::LayoutSample(const TensorSpec& spec) : spec_(spec) {
  shape_.fill(1);
  const size_t rank = spec.shape.size();
  for (size_t i = 0; i < rank; ++i) {
    const size_t from_last = rank - 1 - i;
    shape_[from_last < 3 ? 3 - from_last : 0] *= spec.shape[i];
  }
  // Some of each, then more of what varies fastest.
  constexpr uint64_t kSome = 8;
  const uint64_t rows = kMaxElements / shape_[3];
  for (size_t i = 0; i < 3; ++i) {
    const uint64_t fair = i == 0 || rows >= 512 ? kSome : 4;
    window_[i] = std::min(shape_[i], fair);
  }
  while (window_[0] * window_[1] * window_[2] > rows) {
    uint64_t& most =
        window_[0] > 1 ? window_[0] : window_[window_[1] > 1 ? 1 : 2];
    --most;
  }
  for (const size_t i : {2, 1, 0}) {
    const uint64_t others = window_[0] * window_[1] * window_[2] / window_[i];
    window_[i] = std::max(window_[i], std::min(shape_[i], rows / others));
  }
  for (size_t i = 0; i < 3; ++i) origin_[i] = (shape_[i] - window_[i]) / 2;
}

void LayoutSample::Add(absl::string_view bytes) {
  const uint64_t row_size = shape_[3] * DTypeSize(spec_.dtype);
  const uint64_t run_size = window_[2] * row_size;
  const uint64_t end = position_ + bytes.size();
  for (; next_run_ < window_[0] * window_[1]; ++next_run_) {
    const uint64_t a = origin_[0] + next_run_ / window_[1];
    const uint64_t b = origin_[1] + next_run_ % window_[1];
    const uint64_t first =
        ((a * shape_[1] + b) * shape_[2] + origin_[2]) * row_size;
    const uint64_t from = std::max(first, position_);
    const uint64_t to = std::min(first + run_size, end);
    if (from < to) {
      const absl::string_view part = bytes.substr(from - position_, to - from);
      bytes_.append(part.data(), part.size());
    }
    if (first + run_size > end) break;
  }
  position_ = end;
}

LayoutSample::Alikeness LayoutSample::Compare(
    const std::vector<float>& values) const {
  const size_t channels = shape_[3];
  Alikeness result(channels);
  const auto [wa, wb, wc] = window_;
  std::vector<float> squares(wa * wb * wc);
  for (size_t row = 0; row < squares.size(); ++row) {
    const float* const x = &values[row * channels];
    squares[row] = Dot(x, x, channels);
  }
  const auto add = [&](size_t one, size_t other, Cosines* to) {
    to->Add(Dot(&values[one * channels], &values[other * channels], channels),
            squares[one], squares[other]);
  };
  const bool whole = wc == shape_[2] && shape_[2] % 2 == 0;
  for (size_t a = 0; a < wa; ++a) {
    for (size_t b = 0; b < wb; ++b) {
      for (size_t c = 0; c < wc; ++c) {
        const size_t row = (a * wb + b) * wc + c;
        if (a + 1 < wa) add(row, row + wb * wc, &result.along[0]);
        if (b + 1 < wb) add(row, row + wc, &result.along[1]);
        if (c + 1 < wc) add(row, row + 1, &result.along[2]);
        if (whole && c + 1 == wc / 2) add(row, row + 1, &result.halves);
        if (whole && c + 1 == wc) add(row - c, row, &result.ends);
        if (whole && c + 1 == wc && a + 1 < wa) {
          add(row, row + 1 + (wb - 1) * wc, &result.joins);
        }
      }
    }
  }
  return result;
}

LayoutSample::Alikeness LayoutSample::CompareColumns(
    const std::vector<float>& values) const {
  // As if the last two dimensions were swapped.
  Alikeness result(window_[2]);
  const size_t channels = shape_[3];
  const uint64_t planes = window_[0] * window_[1];
  std::vector<float> columns(channels * window_[2]);
  for (uint64_t plane = 0; plane < planes; ++plane) {
    const float* const rows = &values[plane * columns.size()];
    for (size_t row = 0; row < window_[2]; ++row) {
      for (size_t i = 0; i < channels; ++i) {
        columns[i * window_[2] + row] = rows[row * channels + i];
      }
    }
    float before = 0;
    for (size_t i = 0; i < channels; ++i) {
      const float* const x = &columns[i * window_[2]];
      const float squares = Dot(x, x, window_[2]);
      if (i > 0) {
        result.along[2].Add(Dot(x - window_[2], x, window_[2]), before,
                            squares);
      }
      before = squares;
    }
  }
  return result;
}

absl::string_view LayoutSample::Likely() const {
  std::vector<float> values(bytes_.size() / DTypeSize(spec_.dtype));
  LoadElements(spec_.dtype, reinterpret_cast<const uint8_t*>(bytes_.data()),
               absl::MakeSpan(values));
  const size_t rank = spec_.shape.size();
  const bool known = spec_.role != TensorRole::kNone;
  const Alikeness alike = Compare(values);
  const auto& [a, b, c] = alike.along;
  const bool two = shape_[0] == 2 && !known;
  // Dimensions in front of the last two go before these in likeness: tokens
  // come before heads.
  if (b.Beats(c) && b.mean() >= a.mean()) {
    if (rank == 3) return "thd";
    if (rank > 4) return "2pshd";
    return two ? "2thd" : "bthd";
  }
  // What follows the end of a page is as near to it as tokens ever are, and not
  // as far as the beginning of that page. Sequences of a batch do not go on.
  const bool pages = rank == 4 && shape_[0] >= 4 && alike.joins.any();
  const double between = (c.mean() + alike.ends.mean()) / 2;
  if (pages && alike.joins.mean() >
                   std::max(between, kMargin + alike.joins.chance() / 2)) {
    return known ? "phsd" : "phs(2d)";
  }
  if (pages && !known && c.mean() > kAlike &&
      alike.halves.mean() < c.mean() / 2)
    return "ph(2s)d";
  if (a.Beats(c)) return rank == 4 ? "tbhd" : "2pshd";
  if (shape_[2] > 1 && window_[2] >= 8 && rank == 4 &&
      CompareColumns(values).along[2].Beats(c)) {
    return "bhdt";
  }
  const bool tokens =
      c.mean() > kAlike + c.chance() || (known && c.mean() > c.chance() / 2);
  if (!tokens) return "";
  if (!known && shape_[3] == kLatentChannels) {
    if (rank == 2) return "mla";
    if (rank == 3) {
      return shape_[2] <= kLargestPage ? "paged_mla" : "lt(d+r):rope=64";
    }
    if (rank == 4 && shape_[0] == 1 && shape_[1] == 1) {
      return "11t(d+r):rope=64";
    }
  }
  if (rank == 2) return "td:heads=N";
  if (rank == 3) return known ? "htd" : "ltf:heads=N";
  if (rank > 4) return "lbhtd";
  if (two && a.mean() < c.mean() / 3) return "2ltd:heads=N";
  const bool latent = absl::StrContains(spec_.layout, "(d+r)");
  // Of one head it is a latent as it should be.
  const bool one_head = shape_[0] == 1 && shape_[1] == 1;
  if (!known && !latent && !one_head && shape_[3] > kMaxChannels) {
    return "1ltf:heads=N";
  }
  return "";
}

std::unique_ptr<LayoutSample> LayoutSuspicions::StartTensor(
    const TensorSpec& spec) {
  const uint64_t stride = (count_ + kTensors - 1) / kTensors;
  const bool chosen = stride > 0 && index_++ % stride == 0;
  if (!chosen || !LayoutSample::Applies(spec)) return nullptr;
  return std::make_unique<LayoutSample>(spec);
}

void LayoutSuspicions::FinishTensor(const TensorSpec& spec,
                                    absl::string_view likely) {
  ++looked_at_;
  if (likely.empty()) return;
  if (!spec.layout.empty()) likely = "another than the one declared";
  Suspects& suspects = suspects_[std::string(likely)];
  if (suspects.count++ == 0) suspects.first = spec.name;
}

void LayoutSuspicions::Report(std::vector<Warning>* warnings) const {
  for (const auto& [likely, suspects] : suspects_) {
    warnings->push_back(
        {.code = "LAYOUT_SUSPECT",
         .message = absl::StrCat(
             suspects.count, " of ", looked_at_,
             " tensors looked at do not look like [batch, heads, tokens, "
             "head_dim]: the result is larger or worse than it need be; "
             "declare the layout: it is likely ",
             likely),
         .tensor = suspects.first});
  }
}

bool LayoutGuess::Applies(const TensorSpec& spec) {
  return LayoutSample::Applies(spec);
}

LayoutGuess::LayoutGuess(const TensorSpec& spec)
    : sample_(std::make_unique<LayoutSample>(spec)) {}

LayoutGuess::~LayoutGuess() = default;

void LayoutGuess::Add(absl::string_view bytes) { sample_->Add(bytes); }

std::string LayoutGuess::Likely() const {
  return std::string(sample_->Likely());
}

}  // namespace kvcompress
