// See rotation.h.
#include "rotation.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace peerax {
namespace {

// What is moved at once; it stays in the fastest cache from one rank to the next.
constexpr std::size_t kStepBytes = 16 * 1024;
// About what one thread moves, of all ranks together, before it looks for more to do.
constexpr std::size_t kPieceBytes = 1024 * 1024;

}  // namespace

Move::Move(std::vector<std::vector<View>> arrays, bool cycle) : arrays_(std::move(arrays)), cycle_(cycle) {
  if (cycle_ && arrays_.size() == 1) return;  // to itself
  const std::size_t steps = std::max<std::size_t>(1, kPieceBytes / kStepBytes / arrays_.size());
  for (std::size_t leaf = 0; leaf < arrays_[0].size(); ++leaf) {
    const std::size_t size_bytes = arrays_[0][leaf].size_bytes;
    for (std::size_t begin = 0; begin < size_bytes; begin += steps * kStepBytes) {
      pieces_.push_back({leaf, begin, std::min(begin + steps * kStepBytes, size_bytes)});
    }
  }
}

void Move::Help() {
  while (true) {
    const std::size_t next = begun_.fetch_add(1, std::memory_order_relaxed);
    if (next >= pieces_.size()) return;
    Do(pieces_[next]);
    done_.fetch_add(1, std::memory_order_release);
  }
}

void Move::Finish() {
  Help();
  // Those threads do nothing but copy, so this is no wait for another rank.
  while (done_.load(std::memory_order_acquire) != pieces_.size()) std::this_thread::yield();
}

void Move::Do(const Piece& piece) const {
  alignas(64) char last[kStepBytes];
  for (std::size_t at = piece.begin; at < piece.end; at += kStepBytes) {
    const std::size_t size_bytes = std::min(kStepBytes, piece.end - at);
    const auto part = [&](std::size_t place) { return static_cast<char*>(arrays_[place][piece.leaf].data) + at; };
    if (cycle_) std::memcpy(last, part(arrays_.size() - 1), size_bytes);
    for (std::size_t place = arrays_.size() - 1; place > 0; --place) {
      std::memcpy(part(place), part(place - 1), size_bytes);
    }
    if (cycle_) {
      std::memcpy(part(0), last, size_bytes);
    } else {
      std::memset(part(0), 0, size_bytes);
    }
  }
}

// The first member is the one without a source, or the smallest of a cycle: the same for whoever asks.
Rotation::Rotation(const Operation& operation, std::int32_t member) {
  std::int32_t next = member;
  do {
    members.push_back(next);
    next = operation.source[next];
  } while (next >= 0 && next != member);
  cycle = next >= 0;
  std::reverse(members.begin(), members.end());
  if (cycle) {
    std::rotate(members.begin(), std::min_element(members.begin(), members.end()), members.end());
  } else {
    for (next = operation.destination[member]; next >= 0; next = operation.destination[next]) members.push_back(next);
  }
  missing = members.size();
  here.assign(members.size(), nullptr);
  arrays.resize(members.size());
}

}  // namespace peerax
