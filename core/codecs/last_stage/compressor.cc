// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "codecs/last_stage/compressor.h"

#include <lz4.h>
#include <zstd.h>

#include "codecs/last_stage/lz4_block.h"
#include "codecs/last_stage/zstd_frame.h"
#include "status/macros.h"

namespace kvcompress {
namespace {

// The default of the zstd program.
constexpr int kZstdLevel = 3;

bool CompressLz4(absl::string_view input, std::string* output) {
  if (input.size() < 2) return false;
  output->resize(input.size() - 1);
  const int size = LZ4_compress_default(input.data(), output->data(),
                                        static_cast<int>(input.size()),
                                        static_cast<int>(output->size()));
  if (size <= 0) return false;
  output->resize(static_cast<size_t>(size));
  return true;
}

absl::Status DecompressLz4(absl::string_view input, size_t size, char* output) {
  KVC_RETURN_IF_ERROR(CheckLz4Block(input, size));
  const int decoded =
      LZ4_decompress_safe(input.data(), output, static_cast<int>(input.size()),
                          static_cast<int>(size));
  if (decoded == static_cast<int>(size)) return absl::OkStatus();
  return absl::DataLossError("LZ4 does not take the block");
}

bool CompressZstd(absl::string_view input, std::string* output) {
  if (input.size() < 2) return false;
  output->resize(input.size() - 1);
  const size_t size = ZSTD_compress(output->data(), output->size(),
                                    input.data(), input.size(), kZstdLevel);
  if (ZSTD_isError(size) != 0) return false;
  output->resize(size);
  return true;
}

absl::Status DecompressZstd(absl::string_view input, size_t size,
                            char* output) {
  KVC_RETURN_IF_ERROR(CheckZstdFrame(input, size));
  if (ZSTD_decompress(output, size, input.data(), input.size()) == size) {
    return absl::OkStatus();
  }
  return absl::DataLossError("Zstandard does not take the frame");
}

}  // namespace

const ByteCompressor& Lz4() {
  static constexpr ByteCompressor kLz4 = {"lz4", CompressLz4, DecompressLz4};
  return kLz4;
}

const ByteCompressor& Zstd() {
  static constexpr ByteCompressor kZstd = {"zstd", CompressZstd,
                                           DecompressZstd};
  return kZstd;
}

}  // namespace kvcompress
