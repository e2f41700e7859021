#include "cuda/doorbell_sums.h"

#include <atomic>
#include <bit>
#include <cstring>

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define BELLHOP_PUBLISH_QUADS 1
#endif

namespace bellhop::cuda {
namespace {

constexpr uint32_t kPlainNan = 0x7FC00000u;

void Publish(uint32_t word, uint32_t* to) {
  // Release; pairs with LoadWord.
  std::atomic_ref<uint32_t>(*to).store(word, std::memory_order_release);
}

#if defined(BELLHOP_PUBLISH_QUADS)
// Every word of an aligned store is written at once, and stores become visible in their order.
constexpr int64_t kQuad = 4;
void PublishQuad(__m128i words, uint32_t* to) {
  std::atomic_signal_fence(std::memory_order_release);
  _mm_store_si128(reinterpret_cast<__m128i*>(to), words);
}
__m128i WithoutMarks(__m128i words) {
  // Unsigned words from kFirstMark on are the signed ones from -16 to -1.
  const __m128i from = _mm_cmpgt_epi32(words, _mm_set1_epi32(static_cast<int32_t>(kFirstMark - 1)));
  const __m128i marks = _mm_and_si128(from, _mm_srai_epi32(words, 31));
  return _mm_or_si128(_mm_andnot_si128(marks, words),
                      _mm_and_si128(marks, _mm_set1_epi32(static_cast<int32_t>(kPlainNan))));
}
#endif

}  // namespace

void PublishSums(const float* sums, int64_t n, uint32_t* words) {
  int64_t i = 0;
#if defined(BELLHOP_PUBLISH_QUADS)
  if (reinterpret_cast<uintptr_t>(words) % sizeof(__m128i) == 0) {
    for (; i + kQuad <= n; i += kQuad) PublishQuad(WithoutMarks(_mm_castps_si128(_mm_loadu_ps(sums + i))), words + i);
  }
#endif
  for (; i < n; ++i) {
    const auto word = std::bit_cast<uint32_t>(sums[i]);
    Publish(word < kFirstMark ? word : kPlainNan, words + i);
  }
}

void PublishMark(uint32_t mark, int64_t n, uint32_t* words) {
  for (int64_t i = 0; i < n; ++i) Publish(mark, words + i);
}

DoorbellSums::DoorbellSums(const DoorbellChannel& channel) : channel_(channel) {
  for (int32_t& rows : written_) rows = channel.max_rows;
  for (uint64_t seq = 0; seq < kSumSlots; ++seq) Clear(seq);
}

MatView<uint32_t> DoorbellSums::Of(uint64_t seq, int32_t rows) {
  written_[seq % kSumSlots] = rows;
  return {Slot(seq), rows, channel_.hidden, channel_.stride};
}

void DoorbellSums::Refuse(uint64_t seq, ServiceError error) {
  written_[seq % kSumSlots] = channel_.max_rows;
  PublishMark(RefusedMark(error), channel_.max_rows * channel_.stride, Slot(seq));
}

void DoorbellSums::Answered(uint64_t seq) { Clear(seq - 1); }

void DoorbellSums::Clear(uint64_t seq) {
  int32_t& rows = written_[seq % kSumSlots];
  static_assert(kNoSum == 0xFFFFFFFFu);
  if (rows > 0) std::memset(Slot(seq), 0xFF, static_cast<size_t>(rows * channel_.stride) * sizeof(uint32_t));
  rows = 0;
}

}  // namespace bellhop::cuda
