// The queue between two ends that must agree: messages that wait for a receive, receives that wait for a message.
// At most one of the two queues is non-empty. The k-th message meets the k-th receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "operation.h"

namespace peerax {

struct Rank;

// Bytes of separate sends count against Settings::buffer_limit_bytes from the copy until the receive.
struct Owned {
  std::unique_ptr<char[]> data;
  std::size_t counted_bytes = 0;
  Owned() = default;
  Owned(Owned&& other) noexcept;
  Owned& operator=(Owned&& other) noexcept;
  ~Owned();
};

struct Message {
  const void* data = nullptr;  // the sender's array while lender is set, else owned.data
  std::size_t size_bytes = 0;
  const Operation* operation = nullptr;
  std::size_t leaf = 0;
  Rank* lender = nullptr;  // waits until the message is taken; nullptr: a copy
  Owned owned;
};

struct Receive {
  void* data = nullptr;
  std::size_t size_bytes = 0;
  const Operation* operation = nullptr;
  std::size_t leaf = 0;
  Rank* rank = nullptr;
};

struct Channel {
  Channel(std::int32_t source, std::int32_t destination, std::int64_t tag, std::string path,
          std::int64_t half_of, const Operation* pair)
      : source(source), destination(destination), tag(tag), path(std::move(path)), half_of(half_of), pair(pair) {}

  const std::int32_t source;
  const std::int32_t destination;
  const std::int64_t tag;
  const std::string path;
  const std::int64_t half_of;   // number of the pair whose halves meet here, or -1
  const Operation* const pair;  // an exchange has channels of its own; nullptr: separate operations

  std::mutex mutex;  // guards what follows; held while a message is copied into its buffer
  std::deque<Message> messages;
  std::deque<Receive> receives;
  std::int64_t sent = 0;
  std::int64_t received = 0;
  const Operation* last_received = nullptr;  // by which
};

}  // namespace peerax
