// The merge loop of byte-pair encoding.

#include <algorithm>
#include <limits>
#include <queue>

#include "lib/base/check.hpp"
#include "lib/model/tokenizer_bpe.hpp"

namespace moe::model::tokenizer_detail {
namespace {

// Up to here a scan for the best pair beats the queue.
constexpr std::size_t kShortWord = 32;

void erase_at(std::vector<std::int32_t>& values, std::size_t at) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(at));
}

void merge_short(std::vector<std::int32_t>& symbols, const MergeTable& merges) {
  std::array<MergeTable::Merge, kShortWord> pair{};  // of symbols i and i + 1
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) pair[i] = merges.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = count;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (pair[i].rank >= 0 && (best == count || pair[i].rank < pair[best].rank)) best = i;
    }
    if (best == count) break;
    symbols[best] = pair[best].merged;
    erase_at(symbols, best + 1);
    --count;
    for (std::size_t i = best + 1; i + 1 < count; ++i) pair[i] = pair[i + 1];
    if (best > 0) pair[best - 1] = merges.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pair[best] = merges.find(symbols[best], symbols[best + 1]);
  }
}

struct Candidate {
  std::int32_t rank = 0;
  std::int32_t left = 0;  // position of the left symbol
  std::int32_t merged = 0;
};

struct LaterFirst {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

// The same on a linked list with a queue of candidates: a candidate whose pair has changed since is
// dropped when its turn comes.
class LongWord {
 public:
  LongWord(std::vector<std::int32_t>& symbols, const MergeTable& merges)
      : symbols_(symbols), merges_(merges), next_(symbols.size()), previous_(symbols.size()) {
    const auto count = static_cast<std::int32_t>(symbols.size());
    for (std::int32_t i = 0; i < count; ++i) {
      next_[index(i)] = i + 1 < count ? i + 1 : -1;
      previous_[index(i)] = i - 1;
    }
    for (std::int32_t i = 0; i + 1 < count; ++i) offer(i);
  }

  void run() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const std::int32_t right = next_[index(top.left)];
      if (symbols_[index(top.left)] < 0 || right < 0) continue;
      if (merges_.find(symbols_[index(top.left)], symbols_[index(right)]).merged != top.merged) {
        continue;
      }
      symbols_[index(top.left)] = top.merged;
      symbols_[index(right)] = -1;
      const std::int32_t after = next_[index(right)];
      next_[index(top.left)] = after;
      if (after >= 0) previous_[index(after)] = top.left;
      if (previous_[index(top.left)] >= 0) offer(previous_[index(top.left)]);
      if (after >= 0) offer(top.left);
    }
    std::erase(symbols_, -1);
  }

 private:
  static std::size_t index(std::int32_t position) { return static_cast<std::size_t>(position); }

  void offer(std::int32_t left) {
    const auto merge = merges_.find(symbols_[index(left)], symbols_[index(next_[index(left)])]);
    if (merge.rank >= 0) queue_.push({merge.rank, left, merge.merged});
  }

  std::vector<std::int32_t>& symbols_;
  const MergeTable& merges_;
  std::vector<std::int32_t> next_;
  std::vector<std::int32_t> previous_;
  std::priority_queue<Candidate, std::vector<Candidate>, LaterFirst> queue_;
};

}  // namespace

MergeTable::MergeTable(std::size_t count) {
  std::size_t size = 16;
  while (size < count * 2) size *= 2;
  slots_.resize(size);
  mask_ = size - 1;
}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  // The finalizer of splitmix64: neighbouring ids must not become neighbouring slots.
  std::uint64_t hash = key;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9U;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBU;
  std::size_t slot = static_cast<std::size_t>(hash ^ (hash >> 31)) & mask_;
  while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & mask_;
  return slot;
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                            static_cast<std::uint32_t>(right);
  slots_[slot_of(key)] = {key, merge};
}

MergeTable::Merge MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                            static_cast<std::uint32_t>(right);
  return slots_[slot_of(key)].merge;
}

void merge_symbols(std::vector<std::int32_t>& symbols, const MergeTable& merges) {
  MOE_CHECK(symbols.size() <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()));
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortWord) {
    merge_short(symbols, merges);
  } else {
    LongWord(symbols, merges).run();
  }
}

}  // namespace moe::model::tokenizer_detail
