// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// What comes back from a streaming call, checked message by message. Nothing is
// valid before Finish returns a report. Every breach of the protocol is
// INTERNAL.
//
// Not thread safe.

#ifndef KVCOMPRESS_CLIENT_CPP_RECEIVERS_H_
#define KVCOMPRESS_CLIENT_CPP_RECEIVERS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/chunk_cover.h"
#include "kvcompress/byte_stream.h"
#include "kvcompress/v1/compression_service.pb.h"

namespace kvcompress {

// A file that arrives in chunks.
class ReceivedFile {
 public:
  // The first `head_size` bytes come last. Drops the bytes when `sink` is null.
  explicit ReceivedFile(ByteSink* sink, uint64_t head_size = 0)
      : sink_(sink), cover_(head_size) {}

  absl::Status Add(const v1::FileChunk& chunk);

  // Checks that the file is complete and `size` bytes long.
  absl::Status Finish(uint64_t size) const;

 private:
  ByteSink* const sink_;
  ChunkCover cover_;
};

// The responses of one Compress call.
class CompressReceiver {
 public:
  CompressReceiver(ByteSink* artefact, ByteSink* reconstructed)
      : sink_(artefact), reconstructed_(reconstructed) {}

  absl::Status Receive(const v1::CompressResponse& response);
  absl::StatusOr<v1::CompressionReport> Finish() const;

 private:
  ByteSink* const sink_;
  std::optional<ReceivedFile> artefact_;  // from the first message on
  ReceivedFile reconstructed_;
  std::optional<v1::CompressionReport> report_;
};

// The responses of one Decompress call.
class DecompressReceiver {
 public:
  explicit DecompressReceiver(ByteSink* safetensors) : file_(safetensors) {}

  absl::Status Receive(const v1::DecompressResponse& response);
  absl::StatusOr<v1::DecompressionReport> Finish() const;

 private:
  ReceivedFile file_;
  std::optional<v1::DecompressionReport> report_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_CLIENT_CPP_RECEIVERS_H_
