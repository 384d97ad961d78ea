// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What fuzzers ask of a decoder: any payload is either refused or yields
// exactly the bytes of its tensor, however it is cut.

#ifndef KVCOMPRESS_TESTS_FUZZ_DECODING_H_
#define KVCOMPRESS_TESTS_FUZZ_DECODING_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "input.h"
#include "kvcompress/codec.h"

namespace kvcompress::fuzz {

// The decoded bytes, unless the payload is refused.
inline std::optional<std::string> Decode(const CodecSpec& codec,
                                         const TensorSpec& spec,
                                         absl::string_view payload,
                                         uint8_t seed, bool partly) {
  absl::StatusOr<std::unique_ptr<TensorDecoder>> decoder =
      codec.codec->NewDecoder(spec, codec.parameters);
  if (!decoder.ok()) return std::nullopt;
  if (partly) {
    (*decoder)->set_needed(
        [](uint64_t begin, uint64_t) { return begin % 3 == 0; });
  }
  std::string decoded;
  absl::Status status;
  const absl::StatusOr<DecoderBounds> bounds =
      codec.codec->BoundsOfDecoder(spec, codec.parameters);
  Require(bounds.ok() && bounds->block <= kMaxDecodedBlock,
          "a decoder has bounds");
  const size_t most = seed == 0 ? SIZE_MAX : size_t{1} << (seed % 24);
  std::string output;
  InChunks(payload, seed, [&](absl::string_view chunk) {
    for (bool more = true; more;) {
      const absl::StatusOr<bool> step =
          (*decoder)->Decode(&chunk, most, &output);
      status = step.status();
      Require(output.size() <= std::max<size_t>(most, bounds->block),
              "a step gives no more than it may");
      decoded += output;
      output.clear();
      if (!step.ok()) return false;
      more = *step;
    }
    Require(chunk.empty(), "a decoder that has no more has taken all");
    return true;
  });
  if (status.ok()) status = (*decoder)->Finish();
  const absl::StatusOr<uint64_t> elements = ElementCount(spec);
  const uint64_t size = *elements * DTypeSize(spec.dtype);
  Require(decoded.size() <= size, "a decoder gives no more than its tensor");
  if (!status.ok()) return std::nullopt;
  Require(decoded.size() == size, "a decoder that ends well gives all of it");
  return decoded;
}

// The same of a payload that is here whole, at once or in pieces; nothing where
// that is not for the codec, or the payload is refused.
inline std::optional<std::string> DecodeAtOnce(const CodecSpec& codec,
                                               const TensorSpec& spec,
                                               absl::string_view payload) {
  auto decoder = codec.codec->NewDecoder(spec, codec.parameters);
  if (!decoder.ok()) return std::nullopt;
  std::string decoded;
  const absl::StatusOr<bool> done = (*decoder)->DecodeWhole(
      payload, /*workers=*/nullptr, /*checkpoint=*/nullptr, &decoded);
  Require(done.ok(), "nothing stops a decoder");
  if (!*done || !(*decoder)->Finish().ok()) return std::nullopt;
  return decoded;
}

inline std::optional<std::string> DecodePieces(const CodecSpec& codec,
                                               const TensorSpec& spec,
                                               absl::string_view payload,
                                               uint8_t seed) {
  auto decoder = codec.codec->NewDecoder(spec, codec.parameters);
  if (!decoder.ok()) return std::nullopt;
  const size_t pieces = (*decoder)->Cut(payload, size_t{1} << (seed % 20));
  if (pieces == 0) return std::nullopt;
  std::string decoded;
  for (size_t i = 0; i < pieces; ++i) {
    if (!(*decoder)->DecodePiece(i, &decoded).ok()) return std::nullopt;
  }
  return decoded;
}

inline void DecodeEveryWay(const CodecSpec& codec, const TensorSpec& spec,
                           absl::string_view payload, uint8_t seed) {
  const auto chunked = Decode(codec, spec, payload, seed, false);
  Decode(codec, spec, payload, seed, true);
  Require(chunked == Decode(codec, spec, payload, 0, false),
          "chunks do not matter");
  const auto at_once = DecodeAtOnce(codec, spec, payload);
  Require(!at_once || at_once == chunked, "what is whole is the same");
  const auto pieces = DecodePieces(codec, spec, payload, seed);
  Require(!pieces || pieces == chunked, "pieces are the same");
}

}  // namespace kvcompress::fuzz

#endif  // KVCOMPRESS_TESTS_FUZZ_DECODING_H_
