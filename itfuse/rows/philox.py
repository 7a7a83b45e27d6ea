"""Random words from an index: Philox4x32-10, in NumPy and in C++.

J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2,
3" (2011). A block cipher of ten rounds turns a counter of four 32-bit words and a key of two into
four random words. Here the counter is (block, stream), 64 bits each, the least significant word
first, and the words of all blocks in order are the numbers of a stream. Nothing is kept between
elements, so that they can be made anywhere and in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_INT64, _UINT32, _UINT64 = np.dtype(np.int64), np.dtype(np.uint32), np.dtype(np.uint64)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def philox(block: Any, stream: Any, key: Any) -> tuple[Any, Any, Any, Any]:
    """Return the four words of a block, in uint64.

    Parameters
    ----------
    block, stream, key : array of uint64, or numpy.uint64
        The lower and the upper half of the counter, and the key.
    """
    one, two, three, four = block & _LOW, block >> _HALF, stream & _LOW, stream >> _HALF
    first, second = key & _LOW, key >> _HALF
    for _ in range(10):
        left, right = one * _MULTIPLIERS[0], three * _MULTIPLIERS[1]
        one, two = (right >> _HALF) ^ two ^ first, right & _LOW
        three, four = (left >> _HALF) ^ four ^ second, left & _LOW
        first, second = (first + _WEYL[0]) & _LOW, (second + _WEYL[1]) & _LOW
    return one, two, three, four


def _unsigned(*numbers: Any) -> list[Any]:
    return [np.asarray(one).astype(np.uint64) for one in numbers]


def word(index: Any, key: Any, stream: Any, out: Any) -> Any:
    """Return word `index` of a stream."""
    index, key, stream = _unsigned(index, key, stream)
    words = philox(index >> np.uint64(2), stream, key)
    out[...] = np.choose((index & np.uint64(3)).astype(np.intp), words)
    return out


def pair(index: Any, key: Any, stream: Any, out: Any) -> Any:
    """Return the words 2 * index (the lower half of the result) and 2 * index + 1 of a stream."""
    index, key, stream = _unsigned(index, key, stream)
    one, two, three, four = philox(index >> np.uint64(1), stream, key)
    second = (index & np.uint64(1)) != 0
    out[...] = np.where(second, three | four << _HALF, one | two << _HALF)
    return out


def _high(a: Any, b: Any) -> Any:
    """Return the upper half of the 128-bit product."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + (a0 * b0 >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


def below(index: Any, key: Any, stream: Any, last: Any, out: Any) -> Any:
    """Return a number from 0 to `last` from block `index`: its 128 bits times last + 1, shifted.

    The probabilities of two numbers differ by less than 2**-64 of themselves.
    """
    index, key, stream, last = _unsigned(index, key, stream, last)
    one, two, three, four = philox(index, stream, key)
    low, high, count = one | two << _HALF, three | four << _HALF, last + np.uint64(1)
    part = high * count
    carry = (part + _high(low, count)) < part
    out[...] = np.where(count == 0, high, _high(high, count) + carry)
    return out


_PHILOX = """
struct itf_words {
  unsigned one, two, three, four;
};
// Philox4x32-10 (Salmon et al. 2011) of the counter (block, stream).
__device__ __forceinline__ itf_words itf_philox(unsigned long long block,
                                                unsigned long long stream,
                                                unsigned long long key) {
  itf_words c = {(unsigned)block, (unsigned)(block >> 32), (unsigned)stream,
                 (unsigned)(stream >> 32)};
  unsigned first = (unsigned)key, second = (unsigned)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long left = 0xD2511F53ull * c.one, right = 0xCD9E8D57ull * c.three;
    c = {(unsigned)(right >> 32) ^ c.two ^ first, (unsigned)right,
         (unsigned)(left >> 32) ^ c.four ^ second, (unsigned)left};
    first += 0x9E3779B9u;
    second += 0xBB67AE85u;
  }
  return c;
}
"""
_WORD = """
__device__ __forceinline__ unsigned itf_random_word(long long index, unsigned long long key,
                                                    unsigned long long stream) {
  const itf_words c = itf_philox((unsigned long long)index >> 2, stream, key);
  const unsigned low = index & 1 ? c.two : c.one, high = index & 1 ? c.four : c.three;
  return index & 2 ? high : low;
}
"""
_PAIR = """
__device__ __forceinline__ unsigned long long itf_random_pair(long long index,
                                                              unsigned long long key,
                                                              unsigned long long stream) {
  const itf_words c = itf_philox((unsigned long long)index >> 1, stream, key);
  return index & 1 ? c.three | (unsigned long long)c.four << 32
                   : c.one | (unsigned long long)c.two << 32;
}
"""
_BELOW = """
// The 128 bits of a block times last + 1: its part above them.
__device__ __forceinline__ unsigned long long itf_random_below(long long index,
                                                               unsigned long long key,
                                                               unsigned long long stream,
                                                               unsigned long long last) {
  const itf_words c = itf_philox((unsigned long long)index, stream, key);
  const unsigned long long low = c.one | (unsigned long long)c.two << 32, count = last + 1;
  const unsigned long long high = c.three | (unsigned long long)c.four << 32, part = high * count;
  const unsigned long long carry = part + __umul64hi(low, count) < part ? 1 : 0;
  return count == 0 ? high : __umul64hi(high, count) + carry;
}
"""


def _rule(*operands: np.dtype[Any], result: np.dtype[Any]) -> Any:
    return lambda *given: (operands, result)


_OF_STREAM = (_INT64, _UINT64, _UINT64)
ROWS: tuple[dict[str, Any], ...] = (
    {"name": "random_word", "arity": 3, "doc": "Word number x1 of the stream x3 of the key x2.",
     "numpy": word, "result": _rule(*_OF_STREAM, result=_UINT32),
     "cpp": {"*": "itf_random_word({0}, {1}, {2})"}, "helper": {"*": (_PHILOX, _WORD)}},
    {"name": "random_pair", "arity": 3, "doc": "Words 2 * x1 and 2 * x1 + 1 of the stream.",
     "numpy": pair, "result": _rule(*_OF_STREAM, result=_UINT64),
     "cpp": {"*": "itf_random_pair({0}, {1}, {2})"}, "helper": {"*": (_PHILOX, _PAIR)}},
    {"name": "random_below", "arity": 4, "doc": "A number from 0 to x4 from block x1.",
     "numpy": below, "result": _rule(*_OF_STREAM, _UINT64, result=_UINT64),
     "cpp": {"*": "itf_random_below({0}, {1}, {2}, {3})"}, "helper": {"*": (_PHILOX, _BELOW)}},
)  # fmt: skip
"""Arguments of the rows that ops.py enters; they are no public functions, `itf.random` is."""
