"""Division by a number that is the same for many: exact, and half as long as a division.

The quotient is corrected by its remainder, which a fused multiply-add gives exactly; with the
correctly rounded reciprocal that rounds it correctly (P. Markstein, "Computation of elementary
functions on the IBM RISC System/6000 processor", IBM J. Res. Dev. 34, 1990). That holds while
nothing overflows or loses bits below the least normal number; outside a range of exponents, and for
zeros, infinities and NaN, the division itself is used.
"""

from __future__ import annotations

from itfuse.plan.stages import Program

DIVISOR = """\
// A divisor with its reciprocal; dividends with exponents in `span` are divided with these.
template <typename F> struct Divisor {
  F by, inverse;
  unsigned span;
};
__device__ __forceinline__ Divisor<float> divisor(float by) {
  const bool plain = (__float_as_uint(by) >> 23 & 0xff) - 77 <= 100;  // 2**-50 to 2**51
  return {by, __frcp_rn(by), plain ? 140u << 24 : 0};
}
__device__ __forceinline__ float divide(float a, const Divisor<float>& d) {
  const float near = __fmul_rn(a, d.inverse);
  const float q = __fmaf_rn(__fmaf_rn(-d.by, near, a), d.inverse, near);
  // From 2**-70 to 2**70.
  return (__float_as_uint(a) << 1) - (57u << 24) < d.span ? q : __fdiv_rn(a, d.by);
}
"""


def divisors(program: Program) -> dict[int, int]:
    """Return position -> row value for each division by a row's float32 value."""
    instrs = program.instrs
    return {
        at: instrs[instr.args[1]].slot
        for at, instr in enumerate(instrs)
        if instr.op == "divide"
        and instr.dtype == "float32"
        and all(instrs[arg].dtype == "float32" for arg in instr.args)
        and instrs[instr.args[1]].op == "row"
    }
