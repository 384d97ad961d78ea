// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Threads for what takes time, so that those of gRPC, of which there are few,
// are free to take calls, to refuse them and to answer probes.

#ifndef KVCOMPRESS_SERVER_WORKER_POOL_H_
#define KVCOMPRESS_SERVER_WORKER_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"

namespace kvcompress {

// Runs the tasks of clients: those of each in the order in which they come, and
// of clients that have tasks waiting one after the other. As many run at once
// as there are threads. Tasks that help a call have threads of their own, which
// the system runs at a lower priority: what helps a large call does not keep a
// small one waiting.
//
// A client none of whose tasks runs waits for kPatience at most: then there is
// another thread for it, up to kMaxThreads in all. Such a thread serves
// clients none of whose tasks runs, and ends when for kLinger none came. Where
// the system gives no more threads, the client waits for one of those there
// are. Thread safe.
class WorkerPool {
 public:
  static constexpr std::chrono::milliseconds kPatience{50};
  static constexpr std::chrono::milliseconds kLinger{1000};
  static constexpr unsigned kMaxThreads = 64;
  // Nice increment of helpers: a processor that both want goes to the call at
  // once, and where it is never free, helpers still get a quarter of it.
  static constexpr int kNicer = 5;

  struct Helpers {
    unsigned most = 0;  // threads; 0 for as many as those of calls
    int nicer = kNicer;
  };

  // `threads` is at least 1; fewer where the system gives no more. Throws
  // std::system_error when it gives none at all.
  explicit WorkerPool(unsigned threads) : WorkerPool(threads, Helpers()) {}
  WorkerPool(unsigned threads, Helpers helpers);
  // Runs what has come, then ends. REQUIRES: nothing more comes, but help.
  ~WorkerPool();

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `task`, which throws nothing, on a thread for a client. Nobody waits:
  // how many tasks there may be is for the caller to bound. Throws
  // std::bad_alloc, and is then as if it had not been called.
  void Run(absl::string_view client, std::function<void()> task);

  // The same of a task that helps a call which goes on without it: where the
  // system gives no thread for any, or the pool is being destroyed, it is
  // dropped.
  void Help(absl::string_view client, std::function<void()> task);

  // Threads that there are now, those that help among them.
  unsigned threads() const;

  // One for each processor that this process may run on, and no more than the
  // quota of its control groups is worth, rounded up: threads beyond it would
  // be stopped in the middle of what they do until the next period begins.
  static unsigned Processors();

 private:
  using Clock = std::chrono::steady_clock;
  struct Client;
  using Clients = std::map<std::string, Client, std::less<>>;
  using Turns = std::list<Clients::iterator>;
  using Threads = std::list<std::thread>;

  // Tasks of one kind of a client, and the turns of that kind.
  struct Waiting {
    std::deque<std::function<void()>> tasks;
    // What is put among the turns, while it is not: only who comes may find no
    // memory, and not who is there.
    Turns turn;
  };

  // A client that has tasks, waiting or running.
  struct Client {
    Waiting calls;
    Waiting helpers;
    unsigned running = 0;  // of the calls
    unsigned helping = 0;  // of the helpers that run
    // Since when none runs while some wait.
    Clock::time_point unserved_since;

    bool unserved() const { return running == 0 && !calls.tasks.empty(); }
    bool gone() const {
      return running == 0 && helping == 0 && calls.tasks.empty() &&
             helpers.tasks.empty();
    }
  };

  void Work();
  void WorkAsHelper();
  void WorkForUnserved(Threads::iterator thread);
  void Oversee();
  // The following need the mutex.
  // Adds a task, of one kind of a client's; returns the client.
  Clients::iterator Put(absl::string_view client, Waiting Client::*kind,
                        Turns* turns, std::function<void()> task);
  // Runs the next task of a client, without the mutex.
  void RunNext(Turns::iterator turn, std::unique_lock<std::mutex>* lock);
  static std::function<void()> TakeNext(Turns::iterator turn,
                                        Waiting Client::*kind, Turns* turns);
  // A client begins to be unserved.
  void BeginUnserved(Client* client);
  // The turn of the client that is unserved for longest, or the end.
  Turns::iterator LongestUnserved();
  void StartOverseer();
  // False when the system gives no thread.
  bool AddThread();
  void JoinEnded(std::unique_lock<std::mutex>* lock);

  const unsigned most_helpers_;
  const int nicer_;  // than threads of calls
  mutable std::mutex mutex_;
  std::condition_variable work_;            // for the threads of the start
  std::condition_variable help_;            // for the helpers
  std::condition_variable work_for_added_;  // for those added
  std::condition_variable oversee_;         // for the overseer
  // Guarded by the mutex.
  bool ending_ = false;
  Clients clients_;
  Turns turns_;                   // of clients with tasks that wait
  Turns helper_turns_;            // of those with helpers that wait
  uint64_t waiting_ = 0;          // tasks of calls, of all of them
  uint64_t waiting_help_ = 0;     // tasks that help
  uint64_t idle_ = 0;             // threads of the start that wait
  uint64_t idle_helpers_ = 0;     // of the helpers
  uint64_t idle_added_ = 0;       // of those added
  bool overseer_sleeps_ = false;  // until somebody is unserved
  std::vector<std::thread> threads_;
  std::vector<std::thread> helpers_;  // as help is asked for
  Threads added_;
  Threads ended_;  // of those added; to be joined
  std::thread overseer_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_WORKER_POOL_H_
