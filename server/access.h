// Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

// Which clients may call which methods: rules `METHODS=IDENTITY`.
//
//   Compress+Decompress=spiffe://cluster.local/ns/inference/*
//   *=admin.example
//
// METHODS are names of methods joined by `+`, or `*` for all. IDENTITY is a DNS
// name, a URI or an IP address among the subject alternative names of the
// client's certificate, or a beginning of one before a `*`; `unix` is whoever
// may open the Unix socket; `*` alone is anybody. Case matters. A beginning
// matches no name that others may read as one of another beginning: with a
// segment of its path that is empty, `.` or `..`, with `%`, or with `\`.

#ifndef KVCOMPRESS_SERVER_ACCESS_H_
#define KVCOMPRESS_SERVER_ACCESS_H_

#include <bitset>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "observer.h"

namespace kvcompress {

// Thread safe once the rules are there.
class AccessRules {
 public:
  // INVALID_ARGUMENT for what is no rule.
  absl::Status Add(absl::string_view rule);

  bool empty() const { return rules_.empty(); }

  // OK when there are no rules, or one lets one of the identities in; else
  // PERMISSION_DENIED.
  absl::Status Check(Method method,
                     absl::Span<const std::string> identities) const;

 private:
  struct Rule {
    std::bitset<kMethodCount> methods;
    std::string identity;  // without the `*`
    bool is_prefix = false;
  };

  std::vector<Rule> rules_;
};

}  // namespace kvcompress

#endif  // KVCOMPRESS_SERVER_ACCESS_H_
