// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/wire.h"

#include <memory>
#include <utility>

#include "kvcompress/v1/tensor.pb.h"

namespace kvcompress {
namespace {

constexpr uint8_t kVarint = 0;
constexpr uint8_t kLengthDelimited = 2;
constexpr size_t kLongestVarint = 10;

char Tag(int field, uint8_t type) {
  return static_cast<char>(field << 3 | type);
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

// Bytes of the varint at the front, 0 where there is none.
size_t ReadVarint(absl::string_view bytes, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < bytes.size() && i < kLongestVarint; ++i) {
    *value |= static_cast<uint64_t>(bytes[i] & 0x7f) << (7 * i);
    if ((bytes[i] & 0x80) == 0) return i + 1;
  }
  return 0;
}

absl::string_view View(const grpc::Slice& slice) {
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

grpc::ByteBuffer Join(const std::string& head, const grpc::Slice& data) {
  const grpc::Slice slices[] = {grpc::Slice(head), data};
  return {slices, 2};
}

}  // namespace

bool Pieces::TakeBytes(const grpc::ByteBuffer& message, int field) {
  slices_.clear();
  next_ = 0;
  skip_ = 0;
  if (!message.Dump(&slices_).ok() || slices_.empty()) return false;
  const absl::string_view first = View(slices_[0]);
  uint64_t size = 0;
  if (first.size() < 2 || first[0] != Tag(field, kLengthDelimited)) {
    return false;
  }
  const size_t length = ReadVarint(first.substr(1), &size);
  skip_ = 1 + length;
  return length > 0 && message.Length() - skip_ == size;
}

absl::string_view Pieces::Next() {
  while (next_ < slices_.size()) {
    const absl::string_view piece = View(slices_[next_++]).substr(skip_);
    skip_ = 0;
    if (!piece.empty()) return piece;
  }
  slices_.clear();
  next_ = 0;
  return {};
}

grpc::ByteBuffer SerializeBytes(int field, const grpc::Slice& data) {
  std::string head(1, Tag(field, kLengthDelimited));
  AppendVarint(data.size(), &head);
  return Join(head, data);
}

grpc::ByteBuffer SerializeChunk(int field, uint64_t offset, std::string data) {
  std::string inner;
  if (offset != 0) {
    inner.push_back(Tag(v1::FileChunk::kOffsetFieldNumber, kVarint));
    AppendVarint(offset, &inner);
  }
  inner.push_back(Tag(v1::FileChunk::kDataFieldNumber, kLengthDelimited));
  AppendVarint(data.size(), &inner);
  std::string head(1, Tag(field, kLengthDelimited));
  AppendVarint(inner.size() + data.size(), &head);
  head += inner;
  auto owned = std::make_unique<std::string>(std::move(data));
  const grpc::Slice slice(
      owned->data(), owned->size(),
      [](void* held) { delete static_cast<std::string*>(held); }, owned.get());
  owned.release();  // the slice has it
  return Join(head, slice);
}

}  // namespace kvcompress
