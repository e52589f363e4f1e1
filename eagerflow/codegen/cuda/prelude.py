"""The prelude of all generated CUDA C: types in memory, loads, reductions, random bits.

It includes no headers, and uses only features since the explicit synchronization of warps (CUDA 9,
sm_70). Small floats are converted by bit operations. Compiled for GPUs and run on CPUs in the
tests; not run on a GPU yet.
"""

from __future__ import annotations

from eagerflow.codegen.cuda.instructions import CudaCode
from eagerflow.codegen.numpy.philox import KEY_STEPS, MULTIPLIERS
from eagerflow.codegen.small_floats import NARROWED, WIDENED

_MEMORY = """\
// Types in memory whose values are of another type.
struct bool_byte { unsigned char byte; };
struct half_bits { unsigned short bits; };
struct bfloat_bits { unsigned short bits; };

template <typename T> __device__ __forceinline__ T widen(T x) { return x; }
__device__ __forceinline__ bool widen(bool_byte x) { return x.byte != 0; }
__device__ __forceinline__ float widen(bfloat_bits x) { return widened_bfloat16_uint16(x.bits); }
__device__ __forceinline__ float widen(half_bits x) { return widened_float16_uint16(x.bits); }

template <typename T, typename V> __device__ __forceinline__ void narrow(T &to, V x) { to = x; }
__device__ __forceinline__ void narrow(bool_byte &to, bool x) { to.byte = x; }
__device__ __forceinline__ void narrow(bfloat_bits &to, float x) {
    to.bits = narrowed_bfloat16_float32(x);
}
__device__ __forceinline__ void narrow(half_bits &to, float x) {
    to.bits = narrowed_float16_float32(x);
}

// N neighbours, of which the first `count` exist: in accesses of up to 16 bytes, or one by one.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T item[N]; };

template <int N, typename T, typename V>
__device__ __forceinline__ void load_each(V (&to)[N], const T *from, long long step, int count) {
    #pragma unroll
    for (int k = 0; k < N; ++k) to[k] = k < count ? widen(from[k * step]) : V();
}
template <int N, typename T, typename V>
__device__ __forceinline__ void load_pack(V (&to)[N], const T *from, int count) {
    if (count < N) return load_each<N>(to, from, 1, count);
    const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N> *>(from);
    #pragma unroll
    for (int k = 0; k < N; ++k) to[k] = widen(pack.item[k]);
}
template <int N, typename T, typename V>
__device__ __forceinline__ void store_each(T *to, const V (&from)[N], long long step, int count) {
    #pragma unroll
    for (int k = 0; k < N; ++k) if (k < count) narrow(to[k * step], from[k]);
}
template <int N, typename T, typename V>
__device__ __forceinline__ void store_pack(T *to, const V (&from)[N], int count) {
    if (count < N) return store_each<N>(to, from, 1, count);
    Pack<T, N> pack;
    #pragma unroll
    for (int k = 0; k < N; ++k) narrow(pack.item[k], from[k]);
    *reinterpret_cast<Pack<T, N> *>(to) = pack;
}
"""

_ARITHMETIC = """\
// Minimum and maximum of IEEE 754-2019: a NaN wins, and -0 is less than +0.
__device__ __forceinline__ bool negative_sign(float x) { return __float_as_int(x) < 0; }
__device__ __forceinline__ bool negative_sign(double x) { return __double_as_longlong(x) < 0; }
template <typename T> __device__ __forceinline__ T minimum(T a, T b) {
    const T equal = negative_sign(a) ? a : b, less = a < b ? a : b;
    return a != a ? a : a == b ? equal : less;
}
template <typename T> __device__ __forceinline__ T maximum(T a, T b) {
    const T equal = negative_sign(a) ? b : a, more = a > b ? a : b;
    return a != a ? a : a == b ? equal : more;
}

// A float as an integer: NaN gives 0, numbers beyond the range its nearest end.
template <typename To, typename From>
__device__ __forceinline__ To saturate(From x, To low, To high, From below, From above) {
    if (x != x) return 0;
    return x <= below ? low : x >= above ? high : (To)x;
}
"""

_RANDOM = """\
// One block of Philox4x64-10 at a time: number i of a draw is in block i / 4 (words, or i / 8
// for halves), and neighbours share it.
struct Philox {
    unsigned long long block = ~0ull, w0, w1, w2, w3;
    __device__ __forceinline__ unsigned long long word(
        unsigned long long first, unsigned long long second, unsigned long long draw,
        unsigned long long i) {
        if (i / 4 != block) {
            block = i / 4;
            w0 = block, w1 = draw, w2 = 0, w3 = 0;
            #pragma unroll
            for (int round = 0; round < 10; ++round) {
                const unsigned long long left = w0 * FACTOR_0;
                const unsigned long long left_high = __umul64hi(w0, FACTOR_0);
                const unsigned long long right = w2 * FACTOR_1;
                const unsigned long long right_high = __umul64hi(w2, FACTOR_1);
                w0 = right_high ^ w1 ^ first, w1 = right;
                w2 = left_high ^ w3 ^ second, w3 = left;
                first += STEP_0, second += STEP_1;
            }
        }
        return i & 2 ? (i & 1 ? w3 : w2) : (i & 1 ? w1 : w0);
    }
    __device__ __forceinline__ unsigned int half(
        unsigned long long first, unsigned long long second, unsigned long long draw,
        unsigned long long i) {
        return (unsigned int)(word(first, second, draw, i / 2) >> (i % 2 * 32));
    }
};
"""

_REDUCTIONS = """\
// Reductions between threads, always in the same order, with the result in all of them.
template <typename T> __device__ __forceinline__ T from_lane(T x, int offset) {
    if constexpr (sizeof(T) < sizeof(int))
        return (T)__shfl_xor_sync(0xffffffffu, (int)x, offset);
    else
        return __shfl_xor_sync(0xffffffffu, x, offset);
}
template <typename T, T (*join)(T, T), int LANES, int N>
__device__ __forceinline__ T reduce_lanes(const T (&parts)[N]) {
    T x = parts[0];
    #pragma unroll
    for (int k = 1; k < N; ++k) x = join(x, parts[k]);
    #pragma unroll
    for (int offset = (LANES < 32 ? LANES : 32) / 2; offset > 0; offset /= 2)
        x = join(x, from_lane(x, offset));
    return x;
}
template <typename T, T (*join)(T, T), int THREADS, int N>
__device__ __forceinline__ T reduce_block(const T (&parts)[N], T *shared) {
    T x = reduce_lanes<T, join, 32>(parts);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = shared[0];
    #pragma unroll
    for (int warp = 1; warp < THREADS / 32; ++warp) x = join(x, shared[warp]);
    __syncthreads();  // all have read before the next reduction writes
    return x;
}
"""


def _small_floats() -> str:
    """Device functions for types that are only used in memory."""
    code = CudaCode()
    for dtype in WIDENED:
        code.define(f"widened_{dtype}", WIDENED[dtype], ["uint16"])
        code.define(f"narrowed_{dtype}", NARROWED[dtype], ["float32"])
    return "\n".join(text for text, _ in code.functions.values())


def _constants() -> str:
    """Device functions of the random generator."""
    words = {"FACTOR": MULTIPLIERS, "STEP": KEY_STEPS}
    return "\n".join(
        f"constexpr unsigned long long {name}_{i} = {word:#x}ull;"
        for name, given in words.items()
        for i, word in enumerate(given)
    )


SUPPORT = f"{_small_floats()}\n\n{_MEMORY}\n{_ARITHMETIC}\n{_constants()}\n{_RANDOM}\n{_REDUCTIONS}"
"""The text that precedes the kernels of a module."""
