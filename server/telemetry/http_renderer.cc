// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

#include "telemetry/http_renderer.h"

#include <memory>
#include <utility>

namespace kvcompress {
namespace {

// Null when there is no memory for the page, or it cannot be made.
HttpBody Render(const std::function<std::string()>& page) {
  try {
    return std::make_shared<const std::string>(page());
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

HttpRenderer::HttpRenderer(Pages pages, std::function<void()> done)
    : pages_(std::move(pages)),
      done_(std::move(done)),
      thread_(&HttpRenderer::Run, this) {}

HttpRenderer::~HttpRenderer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

uint64_t HttpRenderer::Ask(int page) {
  uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_[page].asked = true;
    number = state_[page].begun + 1;
  }
  changed_.notify_one();
  return number;
}

HttpRenderer::Rendering HttpRenderer::Take(int page) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(state_[page].last, {});
}

int HttpRenderer::WaitForPage() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    for (int i = 0; i < kPages; ++i) {
      turn_ = (turn_ + 1) % kPages;
      if (!state_[turn_].asked) continue;
      state_[turn_].asked = false;
      ++state_[turn_].begun;
      return turn_;
    }
    changed_.wait(lock);
  }
  return -1;
}

void HttpRenderer::Run() {
  for (int page = WaitForPage(); page >= 0; page = WaitForPage()) {
    HttpBody body = Render(pages_[page]);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      state_[page].last = {state_[page].begun, std::move(body)};
    }
    done_();
  }
}

}  // namespace kvcompress
