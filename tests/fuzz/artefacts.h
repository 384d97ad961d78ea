// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Artefacts, from their first byte on. The header's checksum is made right, or
// no mutation would get past it; digests of payloads are checked after decoding
// and need no help.

#ifndef KVCOMPRESS_TESTS_FUZZ_ARTEFACTS_H_
#define KVCOMPRESS_TESTS_FUZZ_ARTEFACTS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "container/keys.h"
#include "container/manifest.h"
#include "digest/digest.h"
#include "input.h"
#include "kvcompress/artefact.h"
#include "kvcompress/decompressor.h"
#include "kvcompress/profile.h"
#include "restoring.h"

namespace kvcompress::fuzz {

// More than this and a fuzzer measures only memory: tensors of small payload
// may be large.
inline constexpr size_t kMaxOutput = 64 << 20;
// The same of what several threads may hold besides: enough for two with a
// block of the largest that there are.
inline constexpr size_t kMaxMemory = 32 << 20;

// As the format says (core/FORMAT.md, section 3).
inline void Sign(std::string* file) {
  if (file->size() < kChecksumOffset + kDigestDigits) return;
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) {
    length = length << 8 | static_cast<uint8_t>((*file)[i]);
  }
  if (length > file->size() - 8) return;
  const absl::string_view header =
      absl::string_view(*file).substr(0, 8 + length);
  if (header.size() < kChecksumOffset + kDigestDigits) return;
  Digest digest;
  digest.Update(header.substr(0, kChecksumOffset));
  digest.Update(kNoDigest);
  digest.Update(header.substr(kChecksumOffset + kDigestDigits));
  file->replace(kChecksumOffset, kDigestDigits, digest.Hex());
}

struct RestoreOutcome {
  absl::Status status;
  std::string restored;
};

// With several threads nobody else is lent, so that what happens follows from
// the input.
inline RestoreOutcome Restore(const DecompressOptions& options,
                              absl::string_view file, uint8_t seed,
                              unsigned threads = 1) {
  RestoreOutcome outcome;
  DecompressLimits limits = {.max_header_bytes = 1 << 20,
                             .max_tensor_bytes = kMaxOutput};
  limits.threads = {.count = threads,
                    .run = [](const std::function<void()>&) {},
                    .memory = kMaxMemory};
  Decompressor decompressor(options, limits);
  InChunks(file, seed, [&](absl::string_view chunk) {
    outcome.status =
        RestoreChunk(chunk, seed, &decompressor, &outcome.restored, kMaxOutput);
    return outcome.status.ok();
  });
  if (outcome.status.ok()) {
    const absl::StatusOr<DecompressReport> report = decompressor.Finish();
    outcome.status = report.status();
    if (report.ok()) {
      Require(report->output_size == outcome.restored.size(),
              "the report has the size of the output");
    }
  }
  return outcome;
}

// With these profiles at hand.
inline void FuzzArtefact(
    Input input, std::vector<std::shared_ptr<const Profile>> profiles = {}) {
  const uint8_t choice = input.Byte();
  const uint8_t seed = input.Byte();
  DecompressOptions options;
  options.profiles = std::move(profiles);
  options.verify_only = choice % 4 == 1;
  if (choice % 4 == 2) options.tensors = {"*key*"};
  if (choice % 4 == 3) options.tokens.emplace(choice / 4, choice / 4 + 3);
  if (seed >= 128) options.order = TensorOrder::kLayers;
  std::string file(input.rest());
  Sign(&file);
  const RestoreOutcome chunked = Restore(options, file, seed);
  if (seed % 3 == 0) {
    const RestoreOutcome several = Restore(options, file, seed, 3);
    Require(several.status.ok() == chunked.status.ok(),
            "threads do not matter to what is accepted");
    Require(!several.status.ok() || several.restored == chunked.restored,
            "threads do not matter");
  }
  if (!chunked.status.ok()) return;
  // What is accepted does not depend on how it was cut.
  const RestoreOutcome whole = Restore(options, file, 0);
  Require(whole.status.ok() && whole.restored == chunked.restored,
          "chunks do not matter");
}

}  // namespace kvcompress::fuzz

#endif  // KVCOMPRESS_TESTS_FUZZ_ARTEFACTS_H_
