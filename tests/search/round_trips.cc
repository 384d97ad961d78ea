// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// A random search for restores that do not end and for bytes that are wrong:
// caches of drawn shapes, types and layouts are compressed with a drawn codec
// and byte compressor, and restored by drawn numbers of threads, in steps, in
// part, damaged, and with an allocation that fails. A case follows from its
// number alone.
//
//   kvcompress_round_trips SECONDS [FIRST [LARGEST_BYTES [SECONDS_PER_CASE]]]
//
// Prints each finding with the number of its case, and how many cases there
// were. Exit status 1 for a finding. A case that takes longer than it may ends
// the program at once.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "drawn_case.h"
#include "failing_memory.h"
#include "kvcompress/codec.h"
#include "kvcompress/compressor.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/safetensors.h"
#include "support/lent.h"
#include "support/placed.h"
#include "support/safetensors_file.h"

namespace kvcompress::search {
namespace {

using testing::CompressFile;
using testing::Lent;

constexpr int kMaxThreads = 5;

struct Steps {
  unsigned threads = 1;
  uint64_t memory = testing::kEnough;
  size_t chunk = SIZE_MAX;
  size_t most = SIZE_MAX;
  bool placed = false;  // and so not in steps
  bool copies = false;
};

Steps DrawSteps(Draw* draw) {
  Steps steps;
  steps.threads = draw->Of(std::vector<unsigned>{1, 2, kMaxThreads});
  if (draw->OneIn(4)) steps.memory = uint64_t{1} << (16 + draw->Below(10));
  if (draw->OneIn(2)) steps.chunk = 1000 + draw->Below(1 << 20);
  if (draw->OneIn(2)) steps.most = 1000 + draw->Below(2 << 20);
  steps.placed = draw->OneIn(2);
  steps.copies = draw->OneIn(2);
  return steps;
}

// Restores in steps, or in place. INTERNAL also for a step that returns more
// than it may.
absl::StatusOr<std::string> Restore(absl::string_view artefact,
                                    const DecompressOptions& options,
                                    const Steps& steps, Lent* lent) {
  DecompressLimits limits;
  limits.threads = lent->Give(steps.threads, steps.memory);
  if (steps.placed) {
    return testing::RestorePlaced(artefact, options, limits.threads,
                                  steps.copies);
  }
  Decompressor decompressor(options, limits);
  std::string restored;
  while (!artefact.empty()) {
    absl::string_view bytes = artefact.substr(0, steps.chunk);
    artefact.remove_prefix(bytes.size());
    for (bool more = true; more;) {
      std::string part;
      const auto step = decompressor.Restore(&bytes, steps.most, &part);
      if (!step.ok()) return step.status();
      more = *step;
      if (part.size() > std::max<size_t>(steps.most, kMaxDecodedBlock)) {
        return absl::InternalError("a step gave more than it may");
      }
      restored += part;
    }
  }
  const absl::Status end = decompressor.Finish().status();
  if (!end.ok()) return end;
  return restored;
}

// Of [1, heads, tokens, channels], the bytes of some of the tokens.
std::string SliceTokens(const TensorSpec& spec, absl::string_view bytes,
                        std::pair<uint64_t, uint64_t> tokens) {
  const uint64_t row = spec.shape[3] * DTypeSize(spec.dtype);
  std::string slice;
  for (uint64_t head = 0; head < spec.shape[1]; ++head) {
    absl::StrAppend(&slice,
                    bytes.substr((head * spec.shape[2] + tokens.first) * row,
                                 (tokens.second - tokens.first) * row));
  }
  return slice;
}

class Search {
 public:
  explicit Search(uint64_t largest) : largest_(largest) {}

  uint64_t number() const { return number_; }
  uint64_t findings() const { return findings_; }
  uint64_t refused() const { return refused_; }

  void Run(uint64_t number) {
    number_ = number;
    const Case drawn = DrawCase(number, largest_);
    text_ = drawn.text;
    Draw draw(~number);
    const auto alone = CompressFile(drawn.file, drawn.options);
    if (!alone.ok()) {
      // No step holds the thresholds, or a type does not hold a scale.
      if (!absl::IsInvalidArgument(alone.status())) {
        Report(absl::StrCat("compressing: ", alone.status().ToString()));
      }
      ++refused_;
      return;
    }
    CheckCompressing(drawn, *alone, &draw);
    CheckRestoring(drawn, *alone, &draw);
    CheckParts(drawn, *alone, &draw);
    for (int i = 0; i < 3; ++i) CheckDamage(alone->artefact, &draw);
    for (int i = 0; i < 3; ++i) CheckExhaustion(drawn, alone->artefact, &draw);
  }

 private:
  void Report(absl::string_view what) {
    ++findings_;
    std::printf("case %ju (%s): %s\n", static_cast<uintmax_t>(number_),
                text_.c_str(), std::string(what).c_str());
    std::fflush(stdout);
  }

  void CheckCompressing(const Case& drawn, const testing::Compressed& alone,
                        Draw* draw) {
    const Steps steps = DrawSteps(draw);
    CompressLimits limits;
    limits.threads = lent_.Give(steps.threads, steps.memory);
    Compressor compressor(drawn.options, limits);
    CompressOutput output;
    absl::string_view left = drawn.file;
    while (!left.empty()) {
      const absl::string_view part = left.substr(0, steps.chunk);
      left.remove_prefix(part.size());
      if (const auto status = compressor.Append(part, &output); !status.ok()) {
        return Report(absl::StrCat("by threads: ", status.ToString()));
      }
    }
    if (const auto report = compressor.Finish(); !report.ok()) {
      return Report(absl::StrCat("by threads: ", report.status().ToString()));
    }
    if (compressor.header() + output.artefact != alone.artefact) {
      Report(absl::StrCat(steps.threads, " threads make another artefact"));
    }
    if (output.reconstructed != alone.reconstructed) {
      Report(absl::StrCat(steps.threads, " threads reconstruct other bytes"));
    }
  }

  void CheckRestoring(const Case& drawn, const testing::Compressed& alone,
                      Draw* draw) {
    for (const unsigned threads : {1u, 2u, unsigned{kMaxThreads}}) {
      Steps steps = DrawSteps(draw);
      steps.threads = threads;
      const auto restored = Restore(alone.artefact, {}, steps, &lent_);
      if (!restored.ok()) {
        Report(
            absl::StrCat(threads, " threads: ", restored.status().ToString()));
      } else if (*restored != alone.reconstructed) {
        Report(absl::StrCat(threads, " threads restore other bytes"));
      } else if (absl::StartsWith(drawn.options.codec, "lossless") &&
                 *restored != drawn.file) {
        Report("lossless restores other bytes than the source has");
      }
    }
    DecompressOptions verify;
    verify.verify_only = true;
    const auto verified =
        Restore(alone.artefact, verify, DrawSteps(draw), &lent_);
    if (!verified.ok() || !verified->empty()) Report("it is not verified");
  }

  // Some tensors, some tokens, another order.
  void CheckParts(const Case& drawn, const testing::Compressed& alone,
                  Draw* draw) {
    DecompressOptions options;
    if (draw->OneIn(2)) options.order = TensorOrder::kLayers;
    if (draw->OneIn(2)) options.tensors = {draw->Of(drawn.tensors).spec.name};
    const bool plain = drawn.options.layout.empty();
    const uint64_t tokens = drawn.tensors.front().spec.shape.size() == 4
                                ? drawn.tensors.front().spec.shape[2]
                                : 0;
    const bool only_caches = drawn.tensors.size() % 2 == 0;
    if (plain && only_caches && tokens > 0 && draw->OneIn(2)) {
      const uint64_t begin = draw->Below(tokens);
      options.tokens = {begin, begin + 1 + draw->Below(tokens - begin)};
    }
    const auto part = Restore(alone.artefact, options, DrawSteps(draw), &lent_);
    if (!part.ok()) {
      return Report(absl::StrCat("in part: ", part.status().ToString()));
    }
    CompareParts(alone.reconstructed, *part, options);
  }

  void CompareParts(absl::string_view whole, absl::string_view part,
                    const DecompressOptions& options) {
    const auto [header, data] = Parse(whole);
    const auto [header_of_part, data_of_part] = Parse(part);
    for (const SafetensorsEntry& entry : header_of_part.tensors) {
      const auto found = std::find_if(
          header.tensors.begin(), header.tensors.end(),
          [&](const auto& each) { return each.spec.name == entry.spec.name; });
      std::string expected(
          data.substr(found->begin, found->end - found->begin));
      if (options.tokens) {
        expected = SliceTokens(found->spec, expected, *options.tokens);
      }
      if (data_of_part.substr(entry.begin, entry.end - entry.begin) !=
          expected) {
        Report(absl::StrCat("in part: ", entry.spec.name, " is other bytes"));
      }
    }
    const size_t count =
        options.tensors.empty() ? header.tensors.size() : size_t{1};
    if (header_of_part.tensors.size() != count) {
      Report("in part: another number of tensors");
    }
  }

  static std::pair<SafetensorsHeader, absl::string_view> Parse(
      absl::string_view file) {
    SafetensorsHeaderReader reader(kMaxSafetensorsHeader);
    if (!reader.Append(&file).ok() || !reader.done()) return {};
    absl::StatusOr<SafetensorsHeader> header =
        ParseSafetensorsHeader(reader.json());
    if (!header.ok()) return {};
    return {*std::move(header), file};
  }

  // A bit that is flipped, or an end that is missing, never goes unnoticed.
  void CheckDamage(std::string artefact, Draw* draw) {
    const uint64_t header = artefact.size() - Parse(artefact).second.size();
    std::string what;
    if (draw->OneIn(8)) {
      artefact.resize(draw->Below(artefact.size()));
      what = absl::StrCat("cut to ", artefact.size(), " bytes");
    } else {
      // The header is a small part, and a fault there ends early.
      const uint64_t first = draw->OneIn(4) ? 0 : header;
      if (first == artefact.size()) return;
      const uint64_t at = first + draw->Below(artefact.size() - first);
      artefact[at] = static_cast<char>(artefact[at] ^ (1 << draw->Below(8)));
      what = absl::StrCat("a bit of byte ", at);
    }
    DecompressOptions options;
    options.verify_only = draw->OneIn(4);
    const auto restored = Restore(artefact, options, DrawSteps(draw), &lent_);
    if (restored.ok()) {
      Report(absl::StrCat("damage goes unnoticed: ", what));
    } else if (absl::IsInternal(restored.status()) ||
               absl::IsUnknown(restored.status())) {
      Report(absl::StrCat(what, ": ", restored.status().ToString()));
    }
  }

  // Where an allocation fails, all that was taken is given back, once.
  void CheckExhaustion(const Case& drawn, absl::string_view artefact,
                       Draw* draw) {
    const Steps steps = DrawSteps(draw);
    // As many of the first ones as of those after them.
    const uint64_t number = 1 + draw->Below(uint64_t{1} << draw->Below(13));
    absl::Status status;
    try {
      const FailingAllocation failing(number);
      status = draw->OneIn(2) ? CompressFile(drawn.file, drawn.options).status()
                              : Restore(artefact, {}, steps, &lent_).status();
    } catch (const std::bad_alloc&) {
      return;
    }
    if (!status.ok()) {
      Report(absl::StrCat("without the memory of allocation ", number, ": ",
                          status.ToString()));
    }
  }

  const uint64_t largest_;
  std::atomic<uint64_t> number_ = 0;
  uint64_t findings_ = 0;
  uint64_t refused_ = 0;
  std::string text_;
  Lent lent_{kMaxThreads};
};

// Ends the program where a case takes longer than it may.
class Watchdog {
 public:
  Watchdog(const Search* search, std::chrono::seconds most)
      : thread_([this, search, most] {
          uint64_t number = ~uint64_t{0};
          auto since = std::chrono::steady_clock::now();
          while (!ending_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            const auto now = std::chrono::steady_clock::now();
            if (number != search->number()) {
              number = search->number();
              since = now;
            } else if (now - since > most) {
              std::printf("case %ju: no end within %jd s\n",
                          static_cast<uintmax_t>(number),
                          static_cast<intmax_t>(most.count()));
              std::fflush(stdout);
              std::_Exit(1);
            }
          }
        }) {}
  ~Watchdog() {
    ending_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

int Main(int argc, char** argv) {
  // How long, the first case, the largest tensor, the most that a case takes.
  uint64_t numbers[] = {0, 1, 4 << 20, 120};
  if (argc < 2 || argc > 5) return 2;
  for (int i = 1; i < argc; ++i) {
    if (!absl::SimpleAtoi(argv[i], &numbers[i - 1])) return 2;
  }
  const auto [seconds, first, largest, most] = numbers;
  Search search(largest);
  const Watchdog watchdog(&search, std::chrono::seconds(most));
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  uint64_t cases = 0;
  do {
    search.Run(first + cases++);
  } while (std::chrono::steady_clock::now() < end);
  std::printf("%ju cases from %ju on, %ju refused, %ju findings\n",
              static_cast<uintmax_t>(cases), static_cast<uintmax_t>(first),
              static_cast<uintmax_t>(search.refused()),
              static_cast<uintmax_t>(search.findings()));
  return search.findings() > 0 ? 1 : 0;
}

}  // namespace
}  // namespace kvcompress::search

int main(int argc, char** argv) { return kvcompress::search::Main(argc, argv); }
