"""Device functions for values that a block posts to another one, in pairs of words: 4 bytes and a flag.

fuser_post(words, value)                         stores a value of 4 or 8 bytes
fuser_receive(pairs, words, first, step, stop)   waits for posts that begin at words first, first + step, ... below stop,
                                                 and leaves their places empty; all lanes of a warp go on together
fuser_unpack(pairs, value)                       the value of one or two pairs

Whoever has asked 2^28 times, for half a minute at least, waits for what never comes, and ends the kernel with an error
(docs/decisions/0013-blocks-that-wait.md).

A pair is stored and read at once, so that whoever sees the flag has the bits; nothing else needs to be ordered. A fence, an
addition to a counter and a read behind it take three times as long, one after the other.
"""

from __future__ import annotations

POST_FUNCTIONS = {
    "fuser_post_bits": """\
__device__ __forceinline__ void fuser_post_bits(int* words, unsigned bits) {
  const unsigned long long pair = 0x100000000ull | bits;
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" :: "l"(words), "l"(pair) : "memory");
}""",
    "fuser_post": """\
template <class T>
__device__ __forceinline__ void fuser_post(int* words, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a value of 4 or 8 bytes");
  if constexpr (sizeof(T) == 4) {
    fuser_post_bits(words, __builtin_bit_cast(unsigned, value));
  } else {
    const unsigned long long bits = __builtin_bit_cast(unsigned long long, value);
    fuser_post_bits(words, (unsigned)bits);
    fuser_post_bits(words + 2, (unsigned)(bits >> 32));
  }
}""",
    "fuser_receive": """\
template <int POSTS, int PAIRS, class Index>
__device__ __forceinline__ void fuser_receive(
    unsigned long long (&pairs)[POSTS][PAIRS], int* words, Index first, Index step, Index stop) {
  bool is_complete;
  int asked = 0;
  do {
    if (++asked == 1 << 28) __trap();
    is_complete = true;
    #pragma unroll
    for (int k = 0; k < POSTS; ++k) {
      #pragma unroll
      for (int i = 0; i < PAIRS; ++i) {
        pairs[k][i] = 0x100000000ull;
        if (first + k * step < stop) {
          asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];"
                       : "=l"(pairs[k][i]) : "l"(words + first + k * step + 2 * i) : "memory");
        }
      }
    }
    #pragma unroll
    for (int k = 0; k < POSTS; ++k) {
      #pragma unroll
      for (int i = 0; i < PAIRS; ++i) is_complete = is_complete && (pairs[k][i] >> 32) != 0;
    }
  } while (!__all_sync(0xffffffffu, is_complete));
  #pragma unroll
  for (int k = 0; k < POSTS; ++k) {
    #pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
      if (first + k * step < stop) *reinterpret_cast<unsigned long long*>(words + first + k * step + 2 * i) = 0;
    }
  }
}""",
    "fuser_unpack": """\
template <class T>
__device__ __forceinline__ void fuser_unpack(const unsigned long long* pairs, T& value) {
  if constexpr (sizeof(T) == 4) {
    value = __builtin_bit_cast(T, (unsigned)pairs[0]);
  } else {
    value = __builtin_bit_cast(T, (pairs[1] << 32) | (unsigned)pairs[0]);
  }
}""",
}
