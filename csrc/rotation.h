// Exchanges in place: along a path or a cycle of ranks, the arrays of each rank move into the memory of the next one's.
// XLA then needs no second array, and no copy of it; and each array is read and written once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "operation.h"

namespace peerax {

struct Rank;

// What is done when all ranks are here. Any number of threads may help.
class Move {
 public:
  // arrays: by rank, in the order in which they send, and by leaf. The first rank of a path is left with zeros.
  Move(std::vector<std::vector<View>> arrays, bool cycle);

  // Threads that find something to do.
  std::size_t thread_limit() const { return pieces_.empty() ? 1 : pieces_.size(); }
  void Help();    // until no piece is left to begin; those of other threads may be unfinished
  void Finish();  // until all is moved

 private:
  struct Piece {
    std::size_t leaf;
    std::size_t begin;
    std::size_t end;
  };
  void Do(const Piece& piece) const;

  const std::vector<std::vector<View>> arrays_;
  const bool cycle_;
  std::vector<Piece> pieces_;
  std::atomic<std::size_t> begun_{0};
  std::atomic<std::size_t> done_{0};
};

// The ranks of one path or cycle, and those of them that have arrived.
struct Rotation {
  Rotation(const Operation& operation, std::int32_t member);

  std::vector<std::int32_t> members;  // in the order in which they send
  bool cycle = false;

  std::mutex mutex;  // guards what follows
  std::vector<Rank*> here;                // by place among the members; nullptr: not yet
  std::vector<std::vector<View>> arrays;  // of those who are here
  std::size_t missing = 0;
};

}  // namespace peerax
