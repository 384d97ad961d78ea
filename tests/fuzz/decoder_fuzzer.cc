// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// The decoder of every codec, with and without last stages: any payload is
// either refused or gives exactly the bytes of its tensor, however it is cut.

#include <optional>
#include <string>

#include "input.h"
#include "kvcompress/codec.h"

namespace kvcompress::fuzz {
namespace {

// The decoded bytes, unless the payload is refused.
std::optional<std::string> Decode(const CodecSpec& codec,
                                  const TensorSpec& spec,
                                  absl::string_view payload, uint8_t seed,
                                  bool partly) {
  absl::StatusOr<std::unique_ptr<TensorDecoder>> decoder =
      codec.codec->NewDecoder(spec, codec.parameters);
  if (!decoder.ok()) return std::nullopt;
  if (partly) {
    (*decoder)->set_needed(
        [](uint64_t begin, uint64_t) { return begin % 3 == 0; });
  }
  std::string decoded;
  absl::Status status;
  InChunks(payload, seed, [&](absl::string_view chunk) {
    status = (*decoder)->Append(chunk, &decoded);
    return status.ok();
  });
  if (status.ok()) status = (*decoder)->Finish(&decoded);
  const absl::StatusOr<uint64_t> elements = ElementCount(spec);
  const uint64_t size = *elements * DTypeSize(spec.dtype);
  Require(decoded.size() <= size, "a decoder gives no more than its tensor");
  if (!status.ok()) return std::nullopt;
  Require(decoded.size() == size, "a decoder that ends well gives all of it");
  return decoded;
}

void Fuzz(Input input) {
  const std::vector<CodecSpec>& codecs = StoredCodecs();
  const CodecSpec& codec = codecs[input.Byte() % codecs.size()];
  const TensorSpec spec = DrawSpec(&input);
  const uint8_t seed = input.Byte();
  // What a header that was checked lets through.
  const absl::StatusOr<uint64_t> most =
      codec.codec->MaxEncodedSize(spec, codec.parameters);
  if (!most.ok()) return;
  const absl::string_view payload = input.rest().substr(0, *most);
  const auto chunked = Decode(codec, spec, payload, seed, false);
  Decode(codec, spec, payload, seed, true);
  Require(chunked == Decode(codec, spec, payload, 0, false),
          "chunks do not matter");
}

}  // namespace
}  // namespace kvcompress::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcompress::fuzz::Fuzz({data, size});
  return 0;
}
