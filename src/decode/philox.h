// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
// 1, 2, 3" (SC11): four random words are a pure function of a counter and a key. Plain integer arithmetic, so host and
// device code give the same words.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define BELLHOP_PHILOX_INLINE __host__ __device__ inline
#else
#define BELLHOP_PHILOX_INLINE inline
#endif

namespace bellhop::decode {

struct PhiloxCounter {
  uint32_t word[4];
};
struct PhiloxKey {
  uint32_t word[2];
};

BELLHOP_PHILOX_INLINE constexpr PhiloxCounter Philox4x32(PhiloxCounter c, PhiloxKey k) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.word[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ k.word[0], static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ k.word[1], static_cast<uint32_t>(p0)}};
    k.word[0] += 0x9E3779B9u;  // golden ratio
    k.word[1] += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return c;
}

// The number in [0, 1) that decides the token at `position` of `sequence`: 53 bits from the first two words. Key: the
// seed, low word first. Counter: position, then sequence, low words first.
BELLHOP_PHILOX_INLINE constexpr double UniformAt(uint64_t seed, uint64_t sequence, uint64_t position) {
  const PhiloxCounter bits = Philox4x32({{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                                          static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32)}},
                                        {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}});
  const uint64_t high = bits.word[0] >> 5;  // 27 bits
  const uint64_t low = bits.word[1] >> 6;   // 26 bits
  return static_cast<double>(high << 26 | low) * 0x1p-53;
}

}  // namespace bellhop::decode
