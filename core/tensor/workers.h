// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads that share the pieces of one piece of work: blocks of a tensor.
// Internal to the library.

#ifndef KVCOMPRESS_TENSOR_WORKERS_H_
#define KVCOMPRESS_TENSOR_WORKERS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kvcompress/checkpoint.h"

namespace kvcompress {

class Workers {
 public:
  // A piece of work, by its index. `place` is its worker slot: no two pieces
  // that run at a time share one. Slots are below places(); that of the caller
  // is 0.
  using Piece = absl::FunctionRef<void(size_t index, size_t place)>;

  virtual ~Workers() = default;

  virtual size_t places() const = 0;

  // Does the pieces with indexes below `count`, in any order, and returns when
  // all are done. Throws what one of them threw. Thread safe.
  virtual void ForEach(size_t count, Piece piece) = 0;
};

inline size_t PlacesOf(const Workers* workers) {
  return workers == nullptr ? 1 : workers->places();
}

// The same with nobody else to work where `workers` is null.
inline void ForEach(Workers* workers, size_t count, Workers::Piece piece) {
  if (workers != nullptr && count > 1) return workers->ForEach(count, piece);
  for (size_t index = 0; index < count; ++index) piece(index, 0);
}

// The memory of each worker slot, made when it is needed; with a checkpoint of
// its own. Only for work with the same workers.
template <typename Memory>
class AtPlaces {
 public:
  // Makes memory of the checkpoint of its place: null, or outlives it. Thread
  // safe.
  using Make = std::function<std::unique_ptr<Memory>(Checkpoint* checkpoint)>;

  // `first` is the memory of the caller's place, with the checkpoint that goes
  // with it, or null. All outlive this.
  AtPlaces(
      Workers* workers, Memory* first, Checkpoint* checkpoint,
      Make make = [](Checkpoint* of) { return std::make_unique<Memory>(of); })
      : first_(*first),
        checkpoint_(checkpoint),
        make_(std::move(make)),
        others_(PlacesOf(workers)) {}

  Memory& operator[](size_t place) {
    if (place == 0) return first_;
    std::unique_ptr<Other>& other = others_[place];
    if (other == nullptr) other = std::make_unique<Other>(checkpoint_, make_);
    return *other->memory;
  }

 private:
  struct Other {
    Other(const Checkpoint* like, const Make& make) {
      if (like != nullptr) checkpoint.emplace(like->Another());
      memory = make(checkpoint ? &*checkpoint : nullptr);
    }
    std::optional<Checkpoint> checkpoint;
    std::unique_ptr<Memory> memory;
  };

  Memory& first_;
  Checkpoint* const checkpoint_;
  const Make make_;
  std::vector<std::unique_ptr<Other>> others_;
};

// ForEach of work that may fail, each with the checkpoint of the place where it
// is done. `checkpoint`, which may be null, is that of the caller. Its status
// where it stops, else the error of the lowest index.
absl::Status TryForEach(
    Workers* workers, size_t count, Checkpoint* checkpoint,
    absl::FunctionRef<absl::Status(size_t index, Checkpoint* checkpoint)> work);

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_WORKERS_H_
