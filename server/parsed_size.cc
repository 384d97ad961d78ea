// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "parsed_size.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/map_field.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/common.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvcompress/error.h"

namespace kvcompress {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownFieldSet;
using google::protobuf::internal::IsStructurallyValidUTF8;
using google::protobuf::internal::WireFormatLite;

// As protobuf's parsers.
constexpr int kDeepest = 100;

// What malloc takes for this many bytes, in bytes.
constexpr uint64_t Heap(uint64_t size) {
  constexpr uint64_t kLeast = 32;
  constexpr uint64_t kOwnPages = 128 << 10;
  const uint64_t step = size < kOwnPages ? 16 : 4096;
  return std::max(kLeast, (size + 16 + step - 1) / step * step);
}

// A string that is not in its place. Short ones need no more than the object.
constexpr uint64_t String(uint64_t size) {
  constexpr uint64_t kWithin = 15;
  return Heap(sizeof(std::string)) + (size > kWithin ? Heap(size + 1) : 0);
}

// Arrays double: up to twice what is in them, and as long as it is copied the
// half of that again. A pointer of an array, the first with the smallest one:
constexpr uint64_t kPointer = 48;
constexpr uint64_t kArrayGrowth = 3;
constexpr uint64_t kSmallestArray = 64;
// Node, place in the table while that grows, and in a tree when hashes meet.
constexpr uint64_t kMapEntry = 320;
// Of an UnknownFieldSet: an entry, in an array as above; and what the first one
// of a message takes.
constexpr uint64_t kUnknownEntry = 64;
constexpr uint64_t kUnknownFirst = 96;

// Of an object with nothing in it, at most: the vtable, the metadata, which
// fields are there, the cached size; then each field as if it had no union.
// Reflection would say how many exactly, but not where a build with the thread
// sanitizer gives maps another layout than the library's.
uint64_t Object(const Descriptor& type) {
  constexpr uint64_t kFixed = 32;
  constexpr uint64_t kPlain = sizeof(uint64_t);
  constexpr uint64_t kArray =
      sizeof(google::protobuf::RepeatedPtrField<std::string>);
  constexpr uint64_t kMap =
      sizeof(google::protobuf::internal::MapFieldBase) +
      sizeof(google::protobuf::Map<std::string, std::string>);
  uint64_t size = kFixed;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    size += field.is_map() ? kMap : field.is_repeated() ? kArray : kPlain;
  }
  return size;
}

absl::Status NoSuchMessage(absl::string_view what) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("the message does not match the request type: ", what),
      {.reason = "INVALID_MESSAGE", .field = "message"});
}

}  // namespace

struct ParsedSize::Field {
  std::string name;
  WireFormatLite::WireType wire;
  bool repeated = false;
  bool is_map = false;
  bool is_text = false;
  uint64_t size = 0;               // of a number, in bytes
  const Shape* message = nullptr;  // of a message
  int limit = -1;                  // an index, or none
};

struct ParsedSize::Shape {
  uint64_t size = 0;  // of an object with nothing in it, in bytes
  std::unordered_map<int, Field> fields;
};

// One walk over one message.
class ParsedSize::Walk {
 public:
  Walk(const std::vector<ElementLimit>& limits, uint64_t enough,
       google::protobuf::io::CodedInputStream* input)
      : limits_(limits), enough_(enough), input_(*input) {
    result_.elements.resize(limits.size());
  }

  // Up to the limit of the input, or the end of the group `group`. False when
  // it has ended: by an error, or as there is enough.
  bool Message(const Shape* shape, int group, int depth) {
    if (depth > kDeepest) return Fail("nested too deeply");
    bool has_unknown = false;
    while (true) {
      const uint32_t tag = input_.ReadTag();
      if (tag == 0) {
        if (group == 0 && input_.ConsumedEntireMessage()) return true;
        return Fail("truncated");
      }
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const auto wire = WireFormatLite::GetTagWireType(tag);
      if (number == 0) return Fail("a field number is 0");
      if (wire == WireFormatLite::WIRETYPE_END_GROUP) {
        return number == group || Fail("end of a group that was not started");
      }
      const Field* field = nullptr;
      if (shape != nullptr) {
        const auto found = shape->fields.find(number);
        if (found != shape->fields.end()) field = &found->second;
      }
      const bool known = field != nullptr && Fits(*field, wire);
      if (!known && !std::exchange(has_unknown, true)) Add(kUnknownFirst);
      if (known ? !Known(*field, wire, depth) : !Unknown(number, wire, depth)) {
        return false;
      }
      if (result_.bytes > enough_) return false;
    }
  }

  // Of a walk that has ended.
  absl::StatusOr<Result> Take() {
    if (!status_.ok()) return status_;
    return std::move(result_);
  }

 private:
  static bool Fits(const Field& field, WireFormatLite::WireType wire) {
    // A number of a repeated field may come alone, or packed with others.
    return wire == field.wire ||
           (field.repeated && field.size > 0 &&
            wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }

  bool Fail(absl::string_view what) {
    status_ = NoSuchMessage(what);
    return false;
  }

  void Add(uint64_t bytes) { result_.bytes += bytes; }

  bool Count(const Field& field, uint64_t elements) {
    if (field.limit < 0) return true;
    uint64_t& count = result_.elements[field.limit];
    count += elements;
    const ElementLimit& limit = limits_[field.limit];
    if (count <= limit.most) return true;
    status_ = MakeError(
        limit.code,
        absl::StrCat("the request has more than ", limit.most, " of ",
                     limit.shown),
        {.reason = limit.reason, .limit = limit.most, .field = limit.shown});
    return false;
  }

  bool Known(const Field& field, WireFormatLite::WireType wire, int depth) {
    if (wire != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (field.repeated) Add(kSmallestArray);
      return Count(field, 1) && SkipNumber(wire);
    }
    int size = 0;
    if (!Length(&size)) return false;
    if (field.size > 0) {
      Add(kSmallestArray);
      if (field.wire == WireFormatLite::WIRETYPE_VARINT) {
        return Varints(field, size);
      }
      const uint64_t elements = size / field.size;
      Add(kArrayGrowth * field.size * elements);
      return Count(field, elements) && Skip(size);
    }
    if (!Count(field, 1)) return false;
    if (field.message != nullptr) {
      Add(field.is_map
              ? kMapEntry
              : Heap(field.message->size) + (field.repeated ? kPointer : 0));
      return Nested(field, size, depth);
    }
    Add(String(size) + (field.repeated ? kPointer : 0));
    return field.is_text ? Text(field, size) : Skip(size);
  }

  // Packed ones.
  bool Varints(const Field& field, int size) {
    const auto outer = input_.PushLimit(size);
    while (input_.BytesUntilLimit() > 0) {
      Add(kArrayGrowth * field.size);
      if (!Count(field, 1) || !SkipNumber(field.wire)) return false;
      if (result_.bytes > enough_) return false;
    }
    input_.PopLimit(outer);
    return true;
  }

  bool Nested(const Field& field, int size, int depth) {
    const uint64_t before = result_.bytes;
    const auto outer = input_.PushLimit(size);
    if (!Message(field.message, /*group=*/0, depth + 1)) return false;
    if (input_.BytesUntilLimit() != 0) return Fail("truncated");
    input_.PopLimit(outer);
    // A key is read before it is copied into its map.
    if (field.is_map) Add(result_.bytes - before);
    return true;
  }

  bool Unknown(int number, WireFormatLite::WireType wire, int depth) {
    Add(kUnknownEntry);
    if (wire == WireFormatLite::WIRETYPE_START_GROUP) {
      Add(Heap(sizeof(UnknownFieldSet)));
      return Message(nullptr, number, depth + 1);
    }
    if (wire != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      return SkipNumber(wire);
    }
    int size = 0;
    if (!Length(&size)) return false;
    Add(String(size));
    return Skip(size);
  }

  // Of what is within the message.
  bool Length(int* size) {
    return (input_.ReadVarintSizeAsInt(size) &&
            *size <= input_.BytesUntilLimit()) ||
           Fail("invalid length");
  }

  bool SkipNumber(WireFormatLite::WireType wire) {
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT: {
        uint64_t value = 0;
        return input_.ReadVarint64(&value) || Fail("invalid varint");
      }
      case WireFormatLite::WIRETYPE_FIXED64:
        return Skip(sizeof(uint64_t));
      case WireFormatLite::WIRETYPE_FIXED32:
        return Skip(sizeof(uint32_t));
      default:
        return Fail("unknown wire type");
    }
  }

  bool Skip(int size) { return input_.Skip(size) || Fail("truncated"); }

  bool Text(const Field& field, int size) {
    if (!input_.ReadString(&text_, size)) return Fail("truncated");
    return IsStructurallyValidUTF8(text_.data(), size) ||
           Fail(absl::StrCat("the string ", field.name, " is not UTF-8"));
  }

  const std::vector<ElementLimit>& limits_;
  const uint64_t enough_;
  google::protobuf::io::CodedInputStream& input_;
  std::string text_;
  Result result_;
  absl::Status status_;
};

ParsedSize::ParsedSize(const Descriptor& type, std::vector<ElementLimit> limits)
    : limits_(std::move(limits)) {
  top_ = ShapeOf(type);
}

ParsedSize::~ParsedSize() = default;

const ParsedSize::Shape* ParsedSize::ShapeOf(const Descriptor& type) {
  std::unique_ptr<Shape>& place = shapes_[&type];
  if (place != nullptr) return place.get();
  place = std::make_unique<Shape>();
  Shape* const shape = place.get();  // `place` moves when the table grows
  shape->size = Object(type);
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& descriptor = *type.field(i);
    Field field;
    field.name = descriptor.full_name();
    field.wire = WireFormatLite::WireTypeForFieldType(
        static_cast<WireFormatLite::FieldType>(descriptor.type()));
    field.repeated = descriptor.is_repeated();
    field.is_map = descriptor.is_map();
    field.is_text = descriptor.type() == FieldDescriptor::TYPE_STRING;
    if (descriptor.message_type() != nullptr) {
      field.message = ShapeOf(*descriptor.message_type());
    } else if (field.wire != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      field.size = sizeof(uint64_t);
      if (field.wire == WireFormatLite::WIRETYPE_FIXED32) field.size = 4;
    }
    for (size_t limit = 0; limit < limits_.size(); ++limit) {
      if (limits_[limit].field == field.name) {
        field.limit = static_cast<int>(limit);
      }
    }
    shape->fields.emplace(descriptor.number(), std::move(field));
  }
  return shape;
}

absl::StatusOr<ParsedSize::Result> ParsedSize::Of(
    const grpc::ByteBuffer& message, uint64_t enough) const {
  grpc::ByteBuffer references(message);
  grpc::ProtoBufferReader reader(&references);
  if (!reader.status().ok()) return NoSuchMessage("cannot be read");
  google::protobuf::io::CodedInputStream input(&reader);
  input.PushLimit(static_cast<int>(message.Length()));
  Walk walk(limits_, enough, &input);
  walk.Message(top_, /*group=*/0, /*depth=*/0);
  return walk.Take();
}

}  // namespace kvcompress
