// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Renders pages on a thread of its own, so that whoever asks for one does not
// wait, and once for all who asked before a rendering began: nobody gets a page
// that is older than the request.

#ifndef KVCOMPRESS_SERVER_TELEMETRY_HTTP_RENDERER_H_
#define KVCOMPRESS_SERVER_TELEMETRY_HTTP_RENDERER_H_

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "telemetry/http_response.h"

namespace kvcompress {

// Thread safe.
class HttpRenderer {
 public:
  static constexpr int kPages = 2;
  using Pages = std::array<std::function<std::string()>, kPages>;

  struct Rendering {
    uint64_t number = 0;  // from 1 on; 0: none
    HttpBody body;        // null when the page threw an exception
  };

  // Calls one of `pages` at a time, each with an index. `done` is called after
  // each rendering, by the renderer's thread. std::system_error when there is
  // no thread to be had.
  HttpRenderer(Pages pages, std::function<void()> done);
  // Waits for the rendering that runs, and begins none.
  ~HttpRenderer();

  // Asks for a page: its rendering of this number or a later one begins after
  // the call.
  uint64_t Ask(int page);
  // The latest rendering that has ended since the last call. Whoever asked and
  // was given its number or a lower one is to be served from it.
  Rendering Take(int page);

 private:
  struct Page {
    bool asked = false;
    uint64_t begun = 0;
    Rendering last;
  };

  void Run();
  // The next page that is asked for, in turn; -1 at the end.
  int WaitForPage();

  const Pages pages_;
  const std::function<void()> done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Page, kPages> state_;
  int turn_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_TELEMETRY_HTTP_RENDERER_H_
