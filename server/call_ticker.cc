// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "call_ticker.h"

#include <utility>

namespace kvcompress {
namespace {

// How many ticks may pass while one thread looks.
constexpr uint64_t kMaxTicks = 4;

}  // namespace

// Leaves it to gRPC to make the contexts.
class CallTicker::Counter final : public grpc::ContextAllocator {
 public:
  explicit Counter(CallTicker* ticker) : ticker_(ticker) {}

  grpc::CallbackServerContext* NewCallbackServerContext() override {
    ticker_->Add();
    return nullptr;
  }
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext()
      override {
    ticker_->Add();
    return nullptr;
  }

 private:
  CallTicker* const ticker_;
};

void CallTicker::SetLook(std::function<void()> look) {
  const std::lock_guard lock(mutex_);
  look_ = std::move(look);
}

void CallTicker::Look() {
  const std::lock_guard lock(mutex_);
  LookHeld();
}

void CallTicker::LookHeld() {
  looked_ = calls_.load();
  if (look_) look_();
}

void CallTicker::Add() {
  const uint64_t calls = ++calls_;
  if (calls % every_ != 0) return;
  // Where another thread looks, that sees these calls or the next tick does.
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    const auto overdue = [&] { return calls > looked_ + kMaxTicks * every_; };
    if (!overdue()) return;
    lock.lock();
    if (!overdue()) return;
  }
  LookHeld();
}

std::unique_ptr<grpc::ContextAllocator> CallTicker::NewCounter() {
  return std::make_unique<Counter>(this);
}

}  // namespace kvcompress
