// Enough of CUDA to run kernels on a CPU: blocks one after the other, each of their threads a
// fiber that gives way where threads wait for each other. A block whose threads wait for ever
// is an error, so a barrier that not all of them reach is found.
#include <math.h>
#include <setjmp.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static

struct Index { unsigned int x, y, z; };
static Index threadIdx, blockIdx, gridDim;

namespace shim {

struct Meeting { int size = 0, here = 0, round = 0; };
struct Warp { Meeting meeting; unsigned long long slots[32]; };
struct Fiber { ucontext_t start; jmp_buf at; bool begun = false, done = false; Index index; };

constexpr int STACK = 1 << 16;
static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static std::vector<Warp> warps;
static Meeting block;
static int current, progress;
static jmp_buf scheduler;
static void (*body)(void *);
static void *given;

inline void give_way() {
    if (!_setjmp(fibers[current].at)) _longjmp(scheduler, 1);
}
inline void meet(Meeting &meeting) {
    const int round = meeting.round;
    if (++meeting.here == meeting.size) {
        meeting.here = 0, ++meeting.round, ++progress;
    } else {
        while (meeting.round == round) give_way();
    }
}
inline void begin() {
    body(given);
    fibers[current].done = true;
    ++progress;
    _longjmp(scheduler, 1);
}

// One block; false where its threads wait for each other in vain.
inline bool run_block(Index size) {
    const int count = size.x * size.y * size.z;
    fibers.assign(count, Fiber());
    stacks.resize((size_t)count * STACK);
    warps.assign((count + 31) / 32, Warp());
    block = Meeting{count};
    for (int i = 0; i < count; ++i) {
        fibers[i].index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
        ++warps[i / 32].meeting.size;
    }
    for (int left = count; left;) {
        const int before = progress;
        left = 0;
        for (current = 0; current < count; ++current) {
            Fiber &fiber = fibers[current];
            if (fiber.done) continue;
            ++left;
            threadIdx = fiber.index;
            if (_setjmp(scheduler)) continue;
            if (fiber.begun) _longjmp(fiber.at, 1);
            fiber.begun = true;
            getcontext(&fiber.start);
            fiber.start.uc_stack.ss_sp = stacks.data() + (size_t)current * STACK;
            fiber.start.uc_stack.ss_size = STACK;
            makecontext(&fiber.start, begin, 0);
            setcontext(&fiber.start);
        }
        if (left && progress == before) return false;
    }
    return true;
}

template <typename... A, size_t... I>
void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*static_cast<A *>(arguments[I])...);
}
template <typename... A> struct Call {
    void (*kernel)(A...);
    void **arguments;
    static void run(void *self) {
        auto *own = static_cast<Call *>(self);
        call(own->kernel, own->arguments, std::index_sequence_for<A...>());
    }
};

// All blocks: 0, or -1 - number of arguments where there are not as many, or 1 for a deadlock.
template <typename... A>
int run(void (*kernel)(A...), const unsigned *sizes, int count, void **arguments) {
    if (count != (int)sizeof...(A)) return -1 - (int)sizeof...(A);
    Call<A...> one{kernel, arguments};
    body = Call<A...>::run, given = &one;
    gridDim = {sizes[0], sizes[1], sizes[2]};
    for (unsigned z = 0; z < sizes[2]; ++z)
        for (unsigned y = 0; y < sizes[1]; ++y)
            for (unsigned x = 0; x < sizes[0]; ++x) {
                blockIdx = {x, y, z};
                if (!run_block({sizes[3], sizes[4], sizes[5]})) return 1;
            }
    return 0;
}

}  // namespace shim

inline void __syncthreads() { shim::meet(shim::block); }
inline void __syncwarp() {
    shim::meet(shim::warps[shim::current / 32].meeting);
}
template <typename T> inline T __shfl_xor_sync(unsigned int, T x, int offset) {
    shim::Warp &warp = shim::warps[shim::current / 32];
    memcpy(&warp.slots[shim::current % 32], &x, sizeof x);
    shim::meet(warp.meeting);
    T found;
    memcpy(&found, &warp.slots[(shim::current % 32) ^ offset], sizeof found);
    shim::meet(warp.meeting);
    return found;
}

template <typename To, typename From> inline To shim_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &x, sizeof to);
    return to;
}
inline int __float_as_int(float x) { return shim_bits<int>(x); }
inline float __int_as_float(int x) { return shim_bits<float>(x); }
inline long long __double_as_longlong(double x) { return shim_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return shim_bits<double>(x); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
