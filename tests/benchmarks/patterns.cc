// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What names cost to match: our automaton next to RE2::Set, to one RE2 for each
// pattern and to fnmatch, on names of a model and on hostile ones. See
// docs/decisions/name-patterns.md.
//
//   cmake --build build/release --target kvcompress_patterns
//   build/release/tests/benchmarks/kvcompress_patterns

#include <fnmatch.h>
#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/glob.h"

namespace kvcompress {
namespace {

using Strings = std::vector<std::string>;

// Processor time of this thread.
double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
}

// The same as a pattern of `*`, `?` and letters.
std::string RegexOf(const std::string& pattern) {
  std::string regex = "\\A";
  for (const char byte : pattern) {
    absl::StrAppend(&regex, byte == '*'   ? "[\\x00-\\xff]*"
                            : byte == '?' ? "[\\x00-\\xff]"
                                          : RE2::QuoteMeta({&byte, 1}));
  }
  return regex + "\\z";
}

RE2::Options Options() {
  RE2::Options options;
  options.set_encoding(RE2::Options::EncodingLatin1);
  return options;
}

double OwnSeconds(const Strings& patterns, const Strings& names) {
  const double begun = Seconds();
  const std::vector<absl::string_view> views(names.begin(), names.end());
  size_t longest = 0;
  for (const std::string& name : names) {
    longest = std::max(longest, name.size());
  }
  Globs(patterns, longest).Match(views);
  return Seconds() - begun;
}

double SetSeconds(const Strings& patterns, const Strings& names) {
  const double begun = Seconds();
  RE2::Set set(Options(), RE2::UNANCHORED);
  for (const std::string& pattern : patterns) {
    set.Add(RegexOf(pattern), nullptr);
  }
  set.Compile();
  std::vector<int> found;
  for (const std::string& name : names) set.Match(name, &found);
  return Seconds() - begun;
}

double SingleSeconds(const Strings& patterns, const Strings& names) {
  const double begun = Seconds();
  for (const std::string& pattern : patterns) {
    const RE2 regex(RegexOf(pattern), Options());
    for (const std::string& name : names) RE2::FullMatch(name, regex);
  }
  return Seconds() - begun;
}

double LibrarySeconds(const Strings& patterns, const Strings& names) {
  const double begun = Seconds();
  size_t matches = 0;
  for (const std::string& pattern : patterns) {
    for (const std::string& name : names) {
      if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) ++matches;
    }
  }
  volatile size_t kept = matches;  // or else none of it need be computed
  static_cast<void>(kept);
  return Seconds() - begun;
}

void Print(absl::string_view what, const Strings& patterns,
           const Strings& names) {
  size_t bytes = 0;
  for (const std::string& name : names) bytes += name.size();
  absl::PrintF(
      "| %s | %d | %d | %.3f s | %.3f s | %.3f s | %.3f s "
      "|\n",
      what, patterns.size(), bytes / 1000, OwnSeconds(patterns, names),
      SetSeconds(patterns, names), SingleSeconds(patterns, names),
      LibrarySeconds(patterns, names));
}

class Texts {
 public:
  // Letters at random, of the first `count` of the alphabet.
  std::string Next(size_t size, uint32_t count) {
    std::string text;
    for (size_t i = 0; i < size; ++i) {
      text += static_cast<char>('a' + random_() % count);
    }
    return text;
  }
  Strings Several(size_t number, size_t size, uint32_t count) {
    Strings texts;
    for (size_t i = 0; i < number; ++i) texts.push_back(Next(size, count));
    return texts;
  }

 private:
  std::mt19937 random_{1};
};

void PrintAll() {
  absl::PrintF(
      "| names | patterns | kB of names | own | RE2::Set | RE2, one by one | "
      "fnmatch |\n| --- | --- | --- | --- | --- | --- | --- |\n");
  Strings layers;
  for (int i = 0; i < 4096; ++i) {
    layers.push_back(absl::StrCat("model.layers.", i / 2, ".self_attn.",
                                  i % 2 == 0 ? "k" : "v", "_cache"));
  }
  Print("of a model", {"*.k_cache", "*.v_cache"}, layers);
  Texts texts;
  Strings behind;
  for (size_t i = 0; i < 8; ++i) {
    behind.push_back(absl::StrCat("*a", std::string(12 + i, '?')));
  }
  Print("`*a` and 12 to 19 `?`", behind, texts.Several(20000, 64, 2));
  Strings stars;
  for (int i = 0; i < 200; ++i) {
    std::string pattern;
    for (int k = 0; k < 8; ++k) {
      absl::StrAppend(&pattern, "*", texts.Next(2, 3));
    }
    stars.push_back(pattern + "*");
  }
  Print("nine `*` in each pattern", stars, texts.Several(4000, 100, 3));
}

}  // namespace
}  // namespace kvcompress

int main() { kvcompress::PrintAll(); }
