// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// klt on tensors that are long enough for it. Payloads: refused, or decoded to
// exactly the bytes of the tensor. Values: what the encoder says decoding will
// yield is what decoding yields, and the payload keeps to its bound.

#include <string>

#include "decoding.h"
#include "input.h"
#include "klt.h"
#include "kvcompress/codec.h"

namespace kvcompress::fuzz {
namespace {

void RoundTrip(const CodecSpec& codec, const TensorSpec& spec,
               absl::string_view values) {
  const std::string bytes =
      Repeat(values, *ElementCount(spec) * DTypeSize(spec.dtype));
  auto encoder = codec.codec->NewEncoder(spec, codec.parameters, EncodeHints());
  Require(encoder.ok(), "there is an encoder");
  std::string payload, promised;
  absl::Status status = (*encoder)->Append(bytes, &payload, &promised);
  if (status.ok()) status = (*encoder)->Finish(&payload, &promised);
  if (!status.ok()) return;  // values that are not finite
  Require(
      payload.size() <= *codec.codec->MaxEncodedSize(spec, codec.parameters),
      "a payload keeps to its bound");
  const auto decoded = Decode(codec, spec, payload, 0, false);
  Require(decoded == promised, "decoding gives what the encoder said");
}

void Fuzz(Input input) {
  const bool encode = input.Byte() % 4 == 1;
  const CodecSpec codec = DrawKlt(&input);
  const TensorSpec spec = DrawKltSpec(&input);
  if (encode) return RoundTrip(codec, spec, input.rest());
  const uint8_t seed = input.Byte();
  const absl::StatusOr<uint64_t> most =
      codec.codec->MaxEncodedSize(spec, codec.parameters);
  if (!most.ok()) return;
  DecodeEveryWay(codec, spec, input.rest().substr(0, *most), seed);
}

}  // namespace
}  // namespace kvcompress::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcompress::fuzz::Fuzz({data, size});
  return 0;
}
