// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "kvcompress/layout.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvcompress/error.h"
#include "layout/notation.h"
#include "layout/run.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

constexpr absl::string_view kPlainLayouts[] = {"", "bhtd", "flat"};

constexpr absl::string_view kRotatedPart = "part=rope";

// Bytes of a tile.
constexpr uint64_t kTile = 64 << 10;

size_t IndexOf(char axis) { return kAxes.find(axis); }

absl::Status Mismatch(const TensorSpec& spec, absl::string_view layout,
                      absl::string_view what) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("layout ", layout, " does not fit a tensor of shape [",
                   absl::StrJoin(spec.shape, ", "), "]: ", what),
      {.reason = "LAYOUT_MISMATCH",
       .tensor = spec.name,
       .field = "options.layout"});
}

// Shares a dimension out among its axes; those that `sizes` lacks are added.
absl::Status Share(const TensorSpec& spec, absl::string_view layout,
                   size_t index, const DimensionNotation& dimension,
                   std::map<char, uint64_t>* sizes) {
  const uint64_t whole = spec.shape[index];
  const std::string where = absl::StrCat("dimension ", index, " (", whole, ")");
  uint64_t known = dimension.sum ? 0 : 1;
  std::string unknown;
  for (const char axis : dimension.axes) {
    const auto given = sizes->find(axis);
    uint64_t size = 1;
    if (axis == '2') {
      size = 2;
    } else if (axis != '1') {
      if (given == sizes->end()) {
        unknown += axis;
        continue;
      }
      size = given->second;
    }
    if (!dimension.sum && known > std::numeric_limits<uint64_t>::max() / size) {
      return Mismatch(spec, layout, absl::StrCat(where, " is smaller"));
    }
    known = dimension.sum ? known + size : known * size;
  }
  if (unknown.size() > 1) {
    return Mismatch(
        spec, layout,
        absl::StrCat(where, " holds ", AxisName(unknown[0]), " and ",
                     AxisName(unknown[1]), "; say how many, as in ", layout,
                     ":", AxisName(unknown[0]), "=8"));
  }
  if (unknown.empty()) {
    if (whole == known) return absl::OkStatus();
    return Mismatch(
        spec, layout,
        absl::StrCat(where, " should be ", known, " for ", dimension.axes));
  }
  if (dimension.sum ? whole <= known : whole % known != 0) {
    return Mismatch(
        spec, layout,
        absl::StrCat(
            where, dimension.sum ? " is not more than " : " is no multiple of ",
            known));
  }
  (*sizes)[unknown[0]] = dimension.sum ? whole - known : whole / known;
  return absl::OkStatus();
}

// Sizes that the shape does not determine: all of a dimension but the last.
std::string CanonicalText(const LayoutNotation& notation,
                          const std::map<char, uint64_t>& sizes) {
  std::vector<std::string> told;
  for (const DimensionNotation& dimension : notation.dimensions) {
    std::string axes;
    for (const char axis : dimension.axes) {
      if (axis != '2' && axis != '1') axes += axis;
    }
    for (size_t i = 0; i + 1 < axes.size(); ++i) {
      told.push_back(
          absl::StrCat(absl::string_view(&axes[i], 1), "=", sizes.at(axes[i])));
    }
  }
  return absl::StrCat(notation.Text(), told.empty() ? "" : ":",
                      absl::StrJoin(told, ","));
}

}  // namespace

absl::Status ValidateLayout(absl::string_view text) {
  if (IsPlainLayout(text)) return absl::OkStatus();
  return ParseLayout(text).status();
}

bool IsPlainLayout(absl::string_view text) {
  return std::find(std::begin(kPlainLayouts), std::end(kPlainLayouts), text) !=
         std::end(kPlainLayouts);
}

bool IsRotatedPart(const TensorSpec& view) {
  return absl::StrContains(view.layout, "(d+r)") &&
         absl::EndsWith(view.name, absl::StrCat(kRotatedPart, "]"));
}

const Layout::Axis& Layout::axis(char letter) const {
  return axes_[IndexOf(letter)];
}

absl::StatusOr<Layout> Layout::Of(absl::string_view text,
                                  const TensorSpec& source) {
  KVC_ASSIGN_OR_RETURN(const LayoutNotation notation, ParseLayout(text));
  KVC_ASSIGN_OR_RETURN(const uint64_t elements, ElementCount(source));
  const size_t rank = notation.dimensions.size();
  if (source.shape.size() != rank) {
    return Mismatch(source, text, absl::StrCat("it has ", rank, " dimensions"));
  }
  std::map<char, uint64_t> sizes = notation.sizes;
  for (size_t i = 0; i < rank; ++i) {
    KVC_RETURN_IF_ERROR(Share(source, text, i, notation.dimensions[i], &sizes));
  }
  Layout layout;
  layout.source_ = source;
  layout.source_.layout = CanonicalText(notation, sizes);
  layout.element_size_ = DTypeSize(source.dtype);

  // Strides, from the dimension that varies fastest.
  uint64_t stride = 1;
  for (size_t i = rank; i-- > 0;) {
    const DimensionNotation& dimension = notation.dimensions[i];
    uint64_t inner = stride;
    for (size_t j = dimension.axes.size(); j-- > 0;) {
      const char letter = dimension.axes[j];
      if (letter == '1') continue;
      Axis& axis = layout.axes_[IndexOf(letter)];
      axis.present = true;
      axis.size = letter == '2' ? 2 : sizes.at(letter);
      axis.stride = inner;
      // Of no tensor with elements does this overflow.
      if (!dimension.sum) inner *= axis.size;
    }
    stride *= source.shape[i];
  }

  // Views, and the dimensions in front that do nothing but number them.
  bool in_front = true;
  layout.slab_elements_ = elements;
  for (const DimensionNotation& dimension : notation.dimensions) {
    for (const char letter : dimension.axes) {
      if (letter == 'l' || letter == '2') layout.view_axes_.push_back(letter);
    }
    const bool numbers =
        dimension.axes == "1" || dimension.axes == "l" || dimension.axes == "2";
    in_front = in_front && numbers;
    if (in_front) layout.prefix_axes_ = layout.view_axes_.size();
  }
  const uint64_t parts = layout.axis('r').present ? 2 : 1;
  layout.views_per_slab_ = parts;
  for (size_t i = 0; i < layout.view_axes_.size(); ++i) {
    const uint64_t size = layout.axis(layout.view_axes_[i]).size;
    uint64_t& counted =
        i < layout.prefix_axes_ ? layout.slabs_ : layout.views_per_slab_;
    if (size > kMaxViews) counted = kMaxViews + 1;
    counted = std::min(counted * size, kMaxViews + 1);
  }
  if (layout.views() > kMaxViews) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("layout ", text, " makes too many views"),
                     {.reason = "TOO_MANY_VIEWS",
                      .tensor = source.name,
                      .limit = kMaxViews,
                      .field = "options.layout"});
  }
  if (layout.slabs_ > 0) layout.slab_elements_ = elements / layout.slabs_;
  if (layout.views() == 0) {
    return Mismatch(source, text, "it has no layer");
  }
  if (source.layer && uint64_t{*source.layer} + layout.axis('l').size >
                          std::numeric_limits<uint32_t>::max()) {
    return Mismatch(source, text, "its layers are too many");
  }
  if (layout.views() > 1 && source.name.size() > kMaxLaidOutName) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     "the name of a tensor in a layout is too long",
                     {.reason = "NAME_TOO_LONG",
                      .tensor = source.name,
                      .limit = kMaxLaidOutName});
  }
  constexpr char kLoopAxes[] = {'b', 'g', 'h', 'p', 't'};
  for (size_t i = 0; i < kLoops; ++i)
    layout.loops_[i] = layout.axis(kLoopAxes[i]);
  if (layout.axis('s').present) layout.loops_[kLoops - 1] = layout.axis('s');
  // Heads and tokens of two axes each, whose product nothing has checked where
  // a dimension is 0.
  for (const size_t i : {size_t{1}, size_t{3}}) {
    const uint64_t most = std::numeric_limits<int64_t>::max();
    const uint64_t inner = layout.loops_[i + 1].size;
    if (inner != 0 && layout.loops_[i].size > most / inner) {
      return Mismatch(source, text, "its heads or tokens are too many");
    }
  }
  KVC_RETURN_IF_ERROR(ElementCount(layout.View(0)).status());
  return layout;
}

TensorSpec Layout::View(uint64_t index) const {
  TensorSpec view = source_;
  view.shape = {loops_[0].size, loops_[1].size * loops_[2].size,
                loops_[3].size * loops_[4].size, axis('d').size};
  std::vector<std::string> marks;
  if (axis('r').present) {
    const bool rope = index % 2 == 1;
    index /= 2;
    if (rope) {
      view.shape.back() = axis('r').size;
      view.role = TensorRole::kKey;
    }
    marks.emplace_back(rope ? kRotatedPart : "part=latent");
  }
  for (size_t i = view_axes_.size(); i-- > 0;) {
    const uint64_t size = axis(view_axes_[i]).size;
    const uint64_t at = index % size;
    index /= size;
    if (view_axes_[i] == '2') {
      view.role = at == 0 ? TensorRole::kKey : TensorRole::kValue;
      marks.push_back(at == 0 ? "role=key" : "role=value");
    } else {
      view.layer = static_cast<uint32_t>(source_.layer.value_or(0) + at);
      marks.push_back(absl::StrCat("layer=", *view.layer));
    }
  }
  if (!marks.empty()) {
    std::reverse(marks.begin(), marks.end());
    absl::StrAppend(&view.name, "[", absl::StrJoin(marks, ","), "]");
  }
  return view;
}

Layout::Walk Layout::WalkOf(uint64_t view_in_slab) const {
  Walk walk;
  walk.channels = axis('d').size;
  walk.channel_stride = axis('d').stride;
  if (axis('r').present) {
    if (view_in_slab % 2 == 1) {
      walk.offset = axis('d').size * axis('d').stride;
      walk.channels = axis('r').size;
    }
    view_in_slab /= 2;
  }
  for (size_t i = view_axes_.size(); i-- > prefix_axes_;) {
    const Axis& each = axis(view_axes_[i]);
    walk.offset += view_in_slab % each.size * each.stride;
    view_in_slab /= each.size;
  }
  return walk;
}

template <typename CopyRun>
void Layout::Visit(uint64_t view, uint64_t first, uint64_t count,
                   CopyRun copy) const {
  if (count == 0) return;
  const Walk walk = WalkOf(view % views_per_slab_);
  uint64_t channel = first % walk.channels;
  std::array<uint64_t, kLoops> at;
  uint64_t row = first / walk.channels;
  for (size_t i = kLoops; i-- > 0;) {
    at[i] = row % loops_[i].size;
    row /= loops_[i].size;
  }
  for (uint64_t done = 0; done < count;) {
    Run run{.slab = walk.offset + channel * walk.channel_stride,
            .packed = done,
            .rows = 1,
            .row_stride = loops_[kLoops - 1].stride,
            .channels = std::min(walk.channels - channel, count - done),
            .channel_stride = walk.channel_stride};
    for (size_t i = 0; i < kLoops; ++i) run.slab += at[i] * loops_[i].stride;
    if (run.channels == walk.channels) {
      run.rows = std::min(loops_[kLoops - 1].size - at[kLoops - 1],
                          (count - done) / walk.channels);
    }
    copy(run);
    done += run.rows * run.channels;
    channel += run.channels;
    if (channel < walk.channels) continue;
    channel = 0;
    at[kLoops - 1] += run.rows;
    for (size_t i = kLoops; i-- > 1 && at[i] == loops_[i].size;) {
      at[i] = 0;
      ++at[i - 1];
    }
  }
}

void Layout::Gather(uint64_t view, uint64_t first, uint64_t count,
                    const char* slab, char* out) const {
  Visit(view, first, count,
        [&](const Run& run) { GatherRun(run, element_size_, slab, out); });
}

void Layout::Scatter(uint64_t view, uint64_t first, uint64_t count,
                     const char* in, char* slab) const {
  Visit(view, first, count,
        [&](const Run& run) { ScatterRun(run, element_size_, in, slab); });
}

uint64_t Layout::TileElements() const {
  const uint64_t most = kTile / element_size_;
  const uint64_t row = std::max<uint64_t>(axis('d').size, 1);
  return row < most ? most / row * row : most;
}

absl::StatusOr<Layout> Layout::Narrowed(
    std::pair<uint64_t, uint64_t> tokens) const {
  const auto refuse = [&](absl::string_view what,
                          std::optional<uint64_t> limit = std::nullopt) {
    return MakeError(absl::StatusCode::kInvalidArgument, what,
                     {.reason = "INVALID_TOKENS",
                      .tensor = source_.name,
                      .limit = limit,
                      .field = "options.tokens"});
  };
  // The axis that is cut, and how many tokens each of its places has.
  const char cut = axis('t').present ? 't' : axis('p').present ? 'p' : 's';
  const uint64_t unit = cut == 'p' ? axis('s').size : 1;
  const uint64_t all = axis(cut).size * unit;
  if (tokens.first >= tokens.second || tokens.second > all) {
    return refuse(absl::StrCat("tokens ", tokens.first, ":", tokens.second,
                               " are empty or not within the tensor's"),
                  all);
  }
  if (tokens.first % unit != 0 || tokens.second % unit != 0) {
    const uint64_t first = tokens.first / unit * unit;
    const uint64_t end = (tokens.second + unit - 1) / unit * unit;
    return refuse(
        absl::StrCat("in layout ", text(), " tokens are in pages of ", unit,
                     ", and tokens ", tokens.first, ":", tokens.second,
                     " are no whole pages: ask for ", first, ":", end),
        unit);
  }
  KVC_ASSIGN_OR_RETURN(LayoutNotation notation, ParseLayout(text()));
  const uint64_t kept = (tokens.second - tokens.first) / unit;
  TensorSpec source = source_;
  std::string told = notation.Text();
  for (size_t i = 0; i < notation.dimensions.size(); ++i) {
    if (notation.dimensions[i].axes.find(cut) != std::string::npos) {
      source.shape[i] = source.shape[i] / axis(cut).size * kept;
    }
  }
  if (notation.sizes.contains(cut)) notation.sizes[cut] = kept;
  absl::string_view separator = ":";
  for (const auto& [axis, size] : notation.sizes) {
    absl::StrAppend(&told, separator, absl::string_view(&axis, 1), "=", size);
    separator = ",";
  }
  return Of(told, source);
}

ViewWriter::ViewWriter(const Layout& layout, uint64_t view, char* slab)
    : layout_(layout),
      view_(view),
      element_size_(DTypeSize(layout.source().dtype)),
      slab_(slab) {}

void ViewWriter::Append(absl::string_view bytes) {
  if (!straddle_.empty()) {
    const absl::string_view rest =
        bytes.substr(0, element_size_ - straddle_.size());
    straddle_.append(rest.data(), rest.size());
    bytes.remove_prefix(rest.size());
    if (straddle_.size() < element_size_) return;
    layout_.Scatter(view_, done_++, 1, straddle_.data(), slab_);
    straddle_.clear();
  }
  const uint64_t whole = bytes.size() / element_size_;
  layout_.Scatter(view_, done_, whole, bytes.data(), slab_);
  done_ += whole;
  bytes.remove_prefix(whole * element_size_);
  straddle_.append(bytes.data(), bytes.size());
}

}  // namespace kvcompress
