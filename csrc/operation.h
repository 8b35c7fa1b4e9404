// What one communicating operation of a compiled program does, on every rank. Immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace peerax {

enum class Kind { kSend, kReceive, kExchange, kGather };

struct Operation {
  std::int64_t id = 0;               // of all operations of the process
  Kind kind;
  std::string name;                  // as the user knows it: psend, precv, psum
  std::string site;                  // the user's line, "train.py:41"
  std::string receive_site;          // of an exchange: the line of its precv
  std::int64_t tag = 0;
  std::int64_t pair = -1;            // number of the pair that a send or receive is one half of; -1: separate
  std::string path;                  // tangents and cotangents have channels of their own; empty: values
  std::vector<std::int32_t> destination;  // by rank; -1: this rank does not send
  std::vector<std::int32_t> source;       // by rank; -1: this rank does not receive
  std::vector<std::string> types;         // by leaf, "f32[64,128]": what is compared between both ends
  std::vector<bool> in_place;             // of an exchange, by leaf: what is received takes the memory of what is sent
  std::vector<std::int32_t> group;        // of a gather, by rank: number of the group it belongs to
};

// One array of an operation on one rank, in memory that stays valid until the operation completes.
struct ConstView {
  const void* data;
  std::size_t size_bytes;
};
struct View {
  void* data;
  std::size_t size_bytes;
};

inline void Zero(const View& view) {
  if (view.size_bytes != 0) std::memset(view.data, 0, view.size_bytes);
}

}  // namespace peerax
