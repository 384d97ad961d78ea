// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Informs the thread sanitizer how gRPC, whose libraries are not built with it,
// orders what threads do. Without it every call that gRPC hands from one thread
// to the next is taken for a race; with it nothing has to be suppressed.
//
// The functions below, in a program, come before those of the same name in the
// libraries, and call those. What they tell is what gRPC and Abseil promise:
//
// - who locks an absl::Mutex has seen all that was done by those who unlocked
//   it before. All locks of gRPC are such;
// - who takes a tag from a completion queue has seen all that was done before
//   the operation with that tag was started.
//
// The list is complete for what Debian's libgrpc++, libgrpc and libgpr import:
//   nm -DC --undefined-only LIBRARY | grep -E
//   'absl.*(Mutex|CondVar)|grpc_.*queue'

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpcpp/support/server_callback.h>
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"

namespace {

// What the library has under this name.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

grpc_event Taken(const grpc_event& event) {
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops,
                                      size_t count, void* tag, void* reserved) {
  static auto* const next =
      Next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return next(call, ops, count, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                      gpr_timespec deadline, void* reserved) {
  static auto* const next =
      Next<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  return Taken(next(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const next = Next<decltype(grpc_completion_queue_pluck)>(
      "grpc_completion_queue_pluck");
  return Taken(next(queue, tag, deadline, reserved));
}

}  // extern "C"

namespace grpc::internal {

void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  static auto* const next = Next<void(ServerCallbackCall*, bool)>(
      "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");
  __tsan_acquire(&callbacks_outstanding_);
  next(this, inline_ondone);
}

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  static auto* const next = Next<void(ServerCallbackCall*, ServerReactor*)>(
      "_ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_"
      "13ServerReactorE");
  __tsan_acquire(&on_cancel_conditions_remaining_);
  next(this, reactor);
}

}  // namespace grpc::internal

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const next = Next<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  next(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static auto* const next =
      Next<bool(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  const bool locked = next(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  static auto* const next =
      Next<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(this);
  next(this);
}

void CondVar::Wait(Mutex* mutex) {
  static auto* const next = Next<void(CondVar*, Mutex*)>(
      "_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  next(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* const next = Next<bool(CondVar*, Mutex*, Duration)>(
      "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* const next = Next<bool(CondVar*, Mutex*, Time)>(
      "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl
