// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads that share the pieces of one piece of work: blocks of a tensor.
// Internal to the library.

#ifndef KVCOMPRESS_TENSOR_WORKERS_H_
#define KVCOMPRESS_TENSOR_WORKERS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kvcompress/checkpoint.h"

namespace kvcompress {

class Workers {
 public:
  // A piece of work, by its index; of two that are done at a time none has the
  // place of the other. Places are below places(), that of the caller is 0.
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

// What each place works in, made when it is needed; with a checkpoint of its
// own. Only for work with the same workers.
template <typename Memory>
class AtPlaces {
 public:
  // `first` is the memory of the caller's place, with the checkpoint that goes
  // with it, or null. All outlive this.
  AtPlaces(Workers* workers, Memory* first, Checkpoint* checkpoint)
      : first_(*first), checkpoint_(checkpoint), others_(PlacesOf(workers)) {}

  // Memory is made of the checkpoint of its place: null, or outlives it.
  Memory& operator[](size_t place) {
    if (place == 0) return first_;
    std::unique_ptr<Other>& other = others_[place];
    if (other == nullptr) other = std::make_unique<Other>(checkpoint_);
    return *other->memory;
  }

 private:
  struct Other {
    explicit Other(const Checkpoint* like) {
      if (like != nullptr) checkpoint.emplace(like->Another());
      memory.emplace(checkpoint ? &*checkpoint : nullptr);
    }
    std::optional<Checkpoint> checkpoint;
    std::optional<Memory> memory;
  };

  Memory& first_;
  Checkpoint* const checkpoint_;
  std::vector<std::unique_ptr<Other>> others_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_TENSOR_WORKERS_H_
