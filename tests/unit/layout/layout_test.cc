// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Layouts: how they are written, what they refuse, and where the elements of
// their views lie.

#include "kvcompress/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kvcompress/error.h"

namespace kvcompress {
namespace {

TensorSpec Shaped(std::vector<uint64_t> shape, DType dtype = DType::kI32) {
  return {.name = "cache", .dtype = dtype, .shape = std::move(shape)};
}

std::string LayoutReason(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail ? detail->reason : "";
}

// Names each element by its index in the source, and lists a view's.
std::vector<int32_t> ViewElements(const Layout& layout, uint64_t view) {
  const uint64_t slab = view / layout.views_per_slab();
  const size_t per_slab = layout.slab_bytes() / 4;
  std::vector<int32_t> source(per_slab);
  for (size_t i = 0; i < per_slab; ++i) {
    source[i] = static_cast<int32_t>(slab * per_slab + i);
  }
  std::vector<int32_t> out(*ElementCount(layout.View(view)));
  layout.Gather(view, 0, out.size(),
                reinterpret_cast<const char*>(source.data()),
                reinterpret_cast<char*>(out.data()));
  return out;
}

TEST(Layout, HasOneWrittenForm) {
  const std::pair<const char*, std::pair<std::vector<uint64_t>, const char*>>
      kCases[] = {
          {"thd", {{5, 3, 4}, "thd"}},
          {"td:heads=3", {{5, 12}, "t(hd):h=3"}},
          {"td:head_dim=4", {{5, 12}, "t(hd):h=3"}},
          {"t (h d) : h = 3", {{5, 12}, "t(hd):h=3"}},
          {"2ltd:heads=3", {{2, 6, 5, 12}, "2lt(hd):h=3"}},
          {"ltf:heads=3", {{6, 5, 24}, "lt(h2d):h=3"}},
          {"1ltf:head_dim=4", {{1, 6, 5, 24}, "1lt(h2d):h=3"}},
          {"paged", {{7, 3, 16, 4}, "phsd"}},
          {"ph(2s)d", {{7, 3, 32, 4}, "ph(2s)d"}},
          {"mla", {{5, 80}, "t(d+r):d=16"}},
          {"mla:latent=60", {{5, 80}, "t(d+r):d=60"}},
          {"mla:rope=20", {{5, 80}, "t(d+r):d=60"}},
          {"(h)td", {{3, 5, 4}, "htd"}},
      };
  for (const auto& [text, expected] : kCases) {
    const auto layout = Layout::Of(text, Shaped(expected.first));
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->text(), expected.second);
    const auto again = Layout::Of(layout->text(), Shaped(expected.first));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->text(), layout->text());
  }
}

TEST(Layout, SaysWhatIsWrong) {
  for (const char* text :
       {"nhd", "t(hd", "t()d", "(1t)d", "thdd", "td:heads", "td:heads=0",
        "td:noses=3", "thd:layers=3", "th", "hd", "tpsd", "gtd", "trd", "r",
        "(t+d)", ":", "(d+r)t:r", "flat:h=1"}) {
    EXPECT_EQ(LayoutReason(ValidateLayout(text)), "INVALID_LAYOUT") << text;
  }
  EXPECT_EQ(LayoutReason(ValidateLayout(std::string(257, 't'))),
            "INVALID_LAYOUT");
  for (const char* text : {"", "bhtd", "flat", "thd", "hdt", "2 p s h d"}) {
    EXPECT_TRUE(ValidateLayout(text).ok()) << text;
  }
  const std::pair<const char*, std::vector<uint64_t>> kMisfits[] = {
      {"thd", {5, 12}},
      {"td", {5, 12}},
      {"td:heads=5", {5, 12}},
      {"ltf:heads=5", {6, 5, 24}},
      {"2ltd:heads=3", {3, 6, 5, 12}},
      {"1ltf:heads=3", {2, 6, 5, 24}},
      {"mla", {5, 64}},
      {"td:heads=3,head_dim=5", {5, 12}},
      {"ltd:heads=3", {0, 5, 12}},
  };
  for (const auto& [text, shape] : kMisfits) {
    const absl::Status status = Layout::Of(text, Shaped(shape)).status();
    EXPECT_EQ(LayoutReason(status), "LAYOUT_MISMATCH") << text << status;
    EXPECT_EQ(*GetErrorDetail(status)->tensor, "cache");
  }
  const absl::Status told = Layout::Of("td", Shaped({5, 12})).status();
  EXPECT_NE(told.message().find("td:heads=8"), std::string::npos) << told;
}

TEST(Layout, BoundsItsViews) {
  EXPECT_TRUE(Layout::Of("lthd", Shaped({kMaxViews, 1, 0, 1})).ok());
  for (const auto& shape : {std::vector<uint64_t>{2, kMaxViews, 1, 0, 1},
                            {2, uint64_t{1} << 40, 0, 1, 1}}) {
    EXPECT_EQ(LayoutReason(Layout::Of("2lthd", Shaped(shape)).status()),
              "TOO_MANY_VIEWS");
  }
  TensorSpec spec = Shaped({2, 5, 3, 4});
  spec.name = std::string(kMaxLaidOutName + 1, 'a');
  EXPECT_EQ(LayoutReason(Layout::Of("2thd", spec).status()), "NAME_TOO_LONG");
  EXPECT_TRUE(Layout::Of("bthd", spec).ok());
  // No product of what a view multiplies, and the source does not.
  const uint64_t large = uint64_t{1} << 40;
  EXPECT_FALSE(Layout::Of("gthd", Shaped({large, 0, large, 1})).ok());
  EXPECT_FALSE(Layout::Of("phsd", Shaped({large, 0, large, 1})).ok());
}

TEST(Layout, NamesItsViews) {
  TensorSpec spec = Shaped({2, 2, 5, 12});
  spec.layer = 7;
  const Layout stacked = *Layout::Of("2ltd:heads=3", spec);
  ASSERT_EQ(stacked.views(), 4);
  EXPECT_EQ(stacked.slabs(), 4);
  const TensorSpec view = stacked.View(3);
  EXPECT_EQ(view.name, "cache[role=value,layer=8]");
  EXPECT_EQ(view.role, TensorRole::kValue);
  EXPECT_EQ(view.layer, 8);
  EXPECT_EQ(view.shape, (std::vector<uint64_t>{1, 3, 5, 4}));
  EXPECT_EQ(view.layout, "2lt(hd):h=3");

  const Layout latent = *Layout::Of("mla", Shaped({5, 80}));
  ASSERT_EQ(latent.views(), 2);
  EXPECT_EQ(latent.View(0).name, "cache[part=latent]");
  EXPECT_EQ(latent.View(0).role, TensorRole::kNone);
  EXPECT_EQ(latent.View(0).shape, (std::vector<uint64_t>{1, 1, 5, 16}));
  EXPECT_EQ(latent.View(1).name, "cache[part=rope]");
  EXPECT_EQ(latent.View(1).role, TensorRole::kKey);
  EXPECT_EQ(latent.View(1).shape, (std::vector<uint64_t>{1, 1, 5, 64}));

  EXPECT_EQ(Layout::Of("thd", Shaped({5, 3, 4}))->View(0).name, "cache");
}

// The index of an element in the source, from those of its axes.
using Place = uint64_t (*)(const std::map<char, uint64_t>& at);

struct Mapping {
  const char* text;
  std::vector<uint64_t> shape;
  // Sizes of the axes of a view's order, and of what distinguishes views.
  std::map<char, uint64_t> sizes;
  Place place;
};

using Places = std::map<char, uint64_t>;
const std::vector<Mapping>& Mappings() {
  static const auto* const kMappings = new std::vector<Mapping>{
      {"bthd",
       {2, 5, 3, 4},
       {{'b', 2}, {'t', 5}, {'h', 3}, {'d', 4}},
       [](const Places& i) {
         return ((i.at('b') * 5 + i.at('t')) * 3 + i.at('h')) * 4 + i.at('d');
       }},
      {"hdt",
       {3, 4, 5},
       {{'t', 5}, {'h', 3}, {'d', 4}},
       [](const Places& i) {
         return (i.at('h') * 4 + i.at('d')) * 5 + i.at('t');
       }},
      {"td:heads=3",
       {5, 12},
       {{'t', 5}, {'h', 3}, {'d', 4}},
       [](const Places& i) {
         return i.at('t') * 12 + i.at('h') * 4 + i.at('d');
       }},
      {"2ltd:heads=3",
       {2, 6, 5, 12},
       {{'2', 2}, {'l', 6}, {'t', 5}, {'h', 3}, {'d', 4}},
       [](const Places& i) {
         return ((i.at('2') * 6 + i.at('l')) * 5 + i.at('t')) * 12 +
                i.at('h') * 4 + i.at('d');
       }},
      {"ltf:heads=3",
       {6, 5, 24},
       {{'l', 6}, {'2', 2}, {'t', 5}, {'h', 3}, {'d', 4}},
       [](const Places& i) {
         return (i.at('l') * 5 + i.at('t')) * 24 + i.at('h') * 8 +
                i.at('2') * 4 + i.at('d');
       }},
      {"paged",
       {7, 3, 2, 4},
       {{'p', 7}, {'h', 3}, {'s', 2}, {'d', 4}},
       [](const Places& i) {
         return ((i.at('p') * 3 + i.at('h')) * 2 + i.at('s')) * 4 + i.at('d');
       }},
      {"ph(2s)d",
       {7, 3, 4, 4},
       {{'2', 2}, {'p', 7}, {'h', 3}, {'s', 2}, {'d', 4}},
       [](const Places& i) {
         return ((i.at('p') * 3 + i.at('h')) * 4 + i.at('2') * 2 + i.at('s')) *
                    4 +
                i.at('d');
       }},
      {"pgl2shd",
       {2, 2, 3, 2, 4, 3, 5},
       {{'l', 3}, {'2', 2}, {'p', 2}, {'g', 2}, {'s', 4}, {'h', 3}, {'d', 5}},
       [](const Places& i) {
         uint64_t at = i.at('p');
         at = at * 2 + i.at('g');
         at = at * 3 + i.at('l');
         at = at * 2 + i.at('2');
         at = at * 4 + i.at('s');
         at = at * 3 + i.at('h');
         return at * 5 + i.at('d');
       }},
  };
  return *kMappings;
}

uint64_t SizeOf(const Mapping& mapping, char axis) {
  const auto found = mapping.sizes.find(axis);
  return found == mapping.sizes.end() ? 1 : found->second;
}

// What a view should list.
std::vector<int32_t> Expected(const Mapping& mapping, Places at) {
  std::vector<int32_t> expected;
  const std::string order = "bghpstd";
  const auto fill = [&](const auto& self, size_t depth) -> void {
    if (depth == order.size()) {
      expected.push_back(static_cast<int32_t>(mapping.place(at)));
      return;
    }
    for (uint64_t i = 0; i < SizeOf(mapping, order[depth]); ++i) {
      at[order[depth]] = i;
      self(self, depth + 1);
    }
  };
  fill(fill, 0);
  return expected;
}

TEST(Layout, PutsElementsWhereTheyBelong) {
  for (const Mapping& mapping : Mappings()) {
    const auto layout = Layout::Of(mapping.text, Shaped(mapping.shape));
    ASSERT_TRUE(layout.ok()) << layout.status();
    std::map<std::pair<uint64_t, uint64_t>, int> seen;
    for (uint64_t i = 0; i < layout->views(); ++i) {
      const TensorSpec view = layout->View(i);
      const uint64_t role = view.role == TensorRole::kValue ? 1 : 0;
      const uint64_t layer = view.layer.value_or(0);
      EXPECT_EQ((++seen[{role, layer}]), 1);
      const Places place = {{'2', role}, {'l', layer}};
      EXPECT_EQ(ViewElements(*layout, i), Expected(mapping, place))
          << mapping.text << " " << view.name;
    }
    EXPECT_EQ(layout->views(), SizeOf(mapping, 'l') * SizeOf(mapping, '2'));
  }
}

TEST(Layout, ComesBackFromAnyPieces) {
  for (const DType dtype :
       {DType::kU8, DType::kBF16, DType::kF32, DType::kF64}) {
    for (const Mapping& mapping : Mappings()) {
      const Layout layout =
          *Layout::Of(mapping.text, Shaped(mapping.shape, dtype));
      const size_t element = DTypeSize(dtype);
      std::string slab(layout.slab_bytes(), '\0');
      for (size_t i = 0; i < slab.size(); ++i) {
        slab[i] = static_cast<char>(i * 37 + i / 256);
      }
      for (const size_t piece : {1, 3, 7, 64}) {
        std::string restored(slab.size(), '\0');
        for (uint64_t view = 0; view < layout.views_per_slab(); ++view) {
          const uint64_t elements = *ElementCount(layout.View(view));
          std::string whole(elements * element, '\0');
          for (uint64_t i = 0; i < elements; i += piece) {
            layout.Gather(view, i, std::min<uint64_t>(piece, elements - i),
                          slab.data(), whole.data() + i * element);
          }
          ViewWriter writer(layout, view, restored.data());
          for (size_t i = 0; i < whole.size(); i += piece) {
            writer.Append(absl::string_view(whole).substr(i, piece));
          }
        }
        EXPECT_EQ(restored, slab) << mapping.text << " " << piece;
      }
    }
  }
}

TEST(Layout, HoldsNoMoreThanItMust) {
  EXPECT_EQ(Layout::Of("2ltd:heads=3", Shaped({2, 6, 5, 12}))->slab_bytes(),
            5 * 12 * 4);
  EXPECT_EQ(Layout::Of("1ltf:heads=3", Shaped({1, 6, 5, 24}))->slab_bytes(),
            5 * 24 * 4);
  EXPECT_EQ(Layout::Of("tl(hd):heads=3", Shaped({5, 6, 12}))->slab_bytes(),
            5 * 6 * 12 * 4);
}

TEST(Layout, NarrowsToTokens) {
  const Layout layout = *Layout::Of("ltf:heads=3", Shaped({6, 5, 24}));
  const auto narrowed = layout.Narrowed({1, 4});
  ASSERT_TRUE(narrowed.ok()) << narrowed.status();
  EXPECT_EQ(narrowed->source().shape, (std::vector<uint64_t>{6, 3, 24}));
  const Layout mixed = *Layout::Of("(th)d:t=5", Shaped({15, 4}));
  EXPECT_EQ(mixed.Narrowed({1, 4})->source().shape,
            (std::vector<uint64_t>{9, 4}));
  for (const auto& [first, second] :
       {std::pair<uint64_t, uint64_t>{2, 2}, {0, 6}, {4, 3}}) {
    EXPECT_EQ(LayoutReason(layout.Narrowed({first, second}).status()),
              "INVALID_TOKENS");
  }
}

TEST(Layout, NarrowsToWholePages) {
  const Layout paged = *Layout::Of("paged", Shaped({7, 3, 2, 4}));
  EXPECT_EQ(paged.Narrowed({4, 10})->source().shape,
            (std::vector<uint64_t>{3, 3, 2, 4}));
  const Layout together = *Layout::Of("(ph)sd:p=7", Shaped({21, 2, 4}));
  EXPECT_EQ(together.Narrowed({0, 2})->text(), "(ph)sd:p=1");
  const Layout one = *Layout::Of("hsd", Shaped({3, 20, 4}));
  EXPECT_EQ(one.Narrowed({3, 5})->source().shape,
            (std::vector<uint64_t>{3, 2, 4}));
  for (const auto& [first, second] :
       {std::pair<uint64_t, uint64_t>{0, 1}, {1, 4}, {0, 16}, {2, 2}}) {
    EXPECT_EQ(LayoutReason(paged.Narrowed({first, second}).status()),
              "INVALID_TOKENS");
  }
  EXPECT_THAT(paged.Narrowed({3, 5}).status().message(),
              ::testing::HasSubstr("pages of 2, and tokens 3:5 are no whole "
                                   "pages: ask for 2:6"));
}

}  // namespace
}  // namespace kvcompress
