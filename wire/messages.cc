// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "wire/messages.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <memory>
#include <utility>

#include "kvcompress/v1/tensor.pb.h"

namespace kvcompress {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

uint32_t BytesTag(int field) {
  return WireFormatLite::MakeTag(field,
                                 WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
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
  const grpc::Slice& first = slices_[0];
  CodedInputStream input(first.begin(), static_cast<int>(first.size()));
  uint64_t size = 0;
  if (input.ReadTag() != BytesTag(field) || !input.ReadVarint64(&size)) {
    return false;
  }
  skip_ = static_cast<size_t>(input.CurrentPosition());
  return message.Length() - skip_ == size;
}

absl::string_view Pieces::Next() {
  while (next_ < slices_.size()) {
    const grpc::Slice& slice = slices_[next_++];
    absl::string_view piece(reinterpret_cast<const char*>(slice.begin()),
                            slice.size());
    piece.remove_prefix(std::exchange(skip_, 0));
    if (!piece.empty()) return piece;
  }
  slices_.clear();
  next_ = 0;
  return {};
}

grpc::ByteBuffer SerializeBytes(int field, const grpc::Slice& data) {
  std::string head;
  {
    StringOutputStream stream(&head);
    CodedOutputStream out(&stream);
    out.WriteTag(BytesTag(field));
    out.WriteVarint64(data.size());
  }
  return Join(head, data);
}

grpc::ByteBuffer SerializeChunk(int field, uint64_t offset, std::string data) {
  v1::FileChunk chunk;
  chunk.set_offset(offset);
  std::string head;
  {
    StringOutputStream stream(&head);
    CodedOutputStream out(&stream);
    const uint32_t data_tag = BytesTag(v1::FileChunk::kDataFieldNumber);
    const size_t before_data = chunk.ByteSizeLong() +
                               CodedOutputStream::VarintSize32(data_tag) +
                               CodedOutputStream::VarintSize64(data.size());
    out.WriteTag(BytesTag(field));
    out.WriteVarint64(before_data + data.size());
    chunk.SerializeToCodedStream(&out);
    out.WriteTag(data_tag);
    out.WriteVarint64(data.size());
  }
  // The slice owns the bytes once gRPC knows how to release them.
  auto owned = std::make_unique<std::string>(std::move(data));
  const grpc::Slice slice(
      owned->data(), owned->size(),
      [](void* held) { delete static_cast<std::string*>(held); }, owned.get());
  owned.release();
  return Join(head, slice);
}

}  // namespace kvcompress
