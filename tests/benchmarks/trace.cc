// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What of a tensor's work can be shared among threads, and how long each piece
// of it takes, for tests/benchmark --threads: Python works out from it how long
// several threads would take.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "kvcompress/codec.h"
#include "tensor/workers.h"

namespace {

// Processor time of the thread: what else the machine does counts for nothing.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Does the pieces one after the other, and takes their times: what came before
// them, how many they are, and each of them; and so on.
class Stopwatch : public kvcompress::Workers {
 public:
  explicit Stopwatch(size_t places) : places_(places) {}

  size_t places() const override { return places_; }

  void ForEach(size_t count, Piece piece) override {
    times_.push_back(Now() - last_);
    times_.push_back(static_cast<double>(count));
    for (size_t index = 0; index < count; ++index) {
      const double begin = Now();
      piece(index, 0);
      times_.push_back(Now() - begin);
    }
    last_ = Now();
  }

  // With what came behind them.
  std::vector<double> Times() {
    times_.push_back(Now() - last_);
    times_.push_back(0);
    return times_;
  }

 private:
  const size_t places_;
  double last_ = Now();
  std::vector<double> times_;
};

bool Encode(const kvcompress::CodecSpec& codec,
            const kvcompress::TensorSpec& tensor, absl::string_view source,
            kvcompress::Workers* workers, std::string* payload) {
  kvcompress::EncodeHints hints;
  hints.source = source;
  hints.workers = workers;
  auto encoder = codec.codec->NewEncoder(tensor, codec.parameters, hints);
  return encoder.ok() && (*encoder)->Append(source, payload, nullptr).ok() &&
         (*encoder)->Finish(payload, nullptr).ok();
}

bool Decode(const kvcompress::CodecSpec& codec,
            const kvcompress::TensorSpec& tensor, absl::string_view payload,
            kvcompress::Workers* workers) {
  auto decoder = codec.codec->NewDecoder(tensor, codec.parameters);
  if (!decoder.ok()) return false;
  std::string decoded;
  const auto done =
      (*decoder)->DecodeWhole(payload, workers, nullptr, &decoded);
  return done.ok() && *done;
}

}  // namespace

// The times of one tensor of BF16, [1, heads, tokens, channels], to encode or,
// with `decodes`, to decode it, by so many places; how many numbers these are,
// of which no more than `room` are written. Negative where something failed.
extern "C" int64_t kvb_trace(const char* name, int role, uint64_t heads,
                             uint64_t tokens, uint64_t channels,
                             const char* source, int decodes, size_t places,
                             double* times, size_t room) {
  const auto codec = kvcompress::ParseCodec(name);
  if (!codec.ok()) return -1;
  kvcompress::TensorSpec tensor;
  tensor.name = "benchmark";
  tensor.dtype = kvcompress::DType::kBF16;
  tensor.shape = {1, heads, tokens, channels};
  tensor.role = static_cast<kvcompress::TensorRole>(role);
  const absl::string_view bytes(source, 2 * heads * tokens * channels);
  std::string payload;
  Stopwatch encoding(places);
  if (!Encode(*codec, tensor, bytes, &encoding, &payload)) return -1;
  std::vector<double> found = encoding.Times();
  if (decodes != 0) {
    Stopwatch decoding(places);
    if (!Decode(*codec, tensor, payload, &decoding)) return -1;
    found = decoding.Times();
  }
  std::memcpy(times, found.data(),
              std::min(room, found.size()) * sizeof(double));
  return static_cast<int64_t>(found.size());
}
