/* A data allocator for NumPy whose arrays touch pages without any permission.

   Every block begins in a granule of its own of a reserved range of addresses. Behind its pages,
   and so before those of the next block, lie at least GAP pages that nobody may touch. A block ends
   where its last page ends, or begins where its first page begins, as `start` is told; the other end
   of its pages holds a pattern, which is looked at when the block is freed. Freed pages cannot be
   touched either until all other granules have been used once.

   A fault in the range is explained on a file descriptor before the handler that was there before,
   Python's faulthandler, gets it. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

enum { PAGE = 4096, GAP = 15, GRANULE = (GAP + 1) * PAGE, SLACK = 0xA5 };
enum { WITH_PATTERN, WITH_NAN, WITH_DENORMALS };
#define GRANULES (1ul << 21)
#define FREED (1ul << 63)

typedef struct {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *, size_t);
} Allocator; /* NumPy's PyDataMemAllocator */

static Allocator original;
static int at_front, contents, errors;
static size_t most_live;
static size_t live, made, unguarded;

static char *range;
static size_t *sizes; /* of the block that begins in a granule, FREED when it is gone, 0 if none */
static size_t next;   /* the granule where the search for room begins */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_lock(void) { pthread_mutex_lock(&lock); }
static void leave_lock(void) { pthread_mutex_unlock(&lock); }

/* Places -------------------------------------------------------------------------------------- */

static size_t pages_of(size_t size) { return (size + PAGE - 1) / PAGE; }
static size_t granules_of(size_t size) { return (pages_of(size) + GAP + GAP) / (GAP + 1); }
static char *first_page(size_t granule) { return range + granule * GRANULE; }
static int is_live(size_t granule) { return sizes[granule] && !(sizes[granule] & FREED); }
static int in_range(const void *place) {
    return range && (char *)place >= range && (char *)place < range + GRANULES * GRANULE;
}

static char *data_of(size_t granule) {
    size_t size = sizes[granule] & ~FREED;
    return first_page(granule) + (at_front ? 0 : pages_of(size) * PAGE - size);
}

/* The granule of a block of this size, which is in use from now on; GRANULES if there is no room. */
static size_t take_granules(size_t size) {
    size_t count = granules_of(size), begin, tried = 0, found = GRANULES;
    take_lock();
    for (begin = next; live < most_live && tried < 2 * GRANULES;) {
        size_t i, step = 1;
        if (begin + count > GRANULES) {
            tried += GRANULES - begin;
            begin = 0;
            continue;
        }
        for (i = 0; i < count && !is_live(begin + i);) i++;
        if (i == count) {
            memset(sizes + begin, 0, count * sizeof *sizes);
            sizes[begin] = size;
            next = begin + count;
            found = begin;
            live++, made++;
            break;
        }
        step = i + granules_of(sizes[begin + i]);
        begin += step, tried += step;
    }
    leave_lock();
    return found;
}

static void leave_granules(size_t granule) {
    take_lock();
    sizes[granule] |= FREED;
    live--;
    leave_lock();
}

/* Messages ------------------------------------------------------------------------------------ */

static void tell(const char *what, size_t count, const char *where, size_t granule) {
    char text[300];
    int length = snprintf(text, sizeof text, "\nguard pages: %s %zu bytes %s %zu bytes%s\n", what, count,
                          where, sizes[granule] & ~FREED, is_live(granule) ? "" : ", which is freed");
    if (write(errors, text, (size_t)length) < 0) return;
}

static void explain(char *place) {
    size_t own = (size_t)(place - range) / GRANULE, after;
    for (after = own + 1; after < GRANULES && !sizes[after] && after < own + 2;) after++;
    while (own && !sizes[own]) own--;
    if (sizes[own]) {
        char *data = data_of(own), *end = data + (sizes[own] & ~FREED);
        if (place < data) tell("touched", (size_t)(data - place), "before an array of", own);
        else if (place < end) tell("touched", (size_t)(place - data), "from the start of an array of", own);
        else tell("touched", (size_t)(place - end), "behind the end of an array of", own);
    }
    if (after < GRANULES && sizes[after])
        tell("that is", (size_t)(data_of(after) - place), "before an array of", after);
}

static struct sigaction earlier[2];

static void on_fault(int number, siginfo_t *told, void *context) {
    (void)context;
    sigaction(number, &earlier[number == SIGBUS], NULL); /* the instruction is done again */
    if (in_range(told->si_addr)) explain(told->si_addr);
}

/* The allocator ------------------------------------------------------------------------------- */

static void fill_contents(char *data, size_t size) {
    if (contents != WITH_DENORMALS) memset(data, contents == WITH_NAN ? 0xFF : SLACK, size);
    else for (size_t i = 0; i < size; i++) data[i] = !(i & 1);
    /* 0x0001 in each two bytes is a denormal number in float16, bfloat16, float32 and float64. */
}

/* Fresh memory, zero or filled; NULL where there are no pages. */
static char *new_block(size_t size, int zero) {
    /* NumPy asks for one byte for arrays without elements, and einsum reads their first. */
    size_t granule = take_granules(size > 1 ? size : 16);
    if (granule == GRANULES) return NULL;
    char *first = first_page(granule), *data = data_of(granule);
    size_t whole = pages_of(sizes[granule]) * PAGE, own = sizes[granule];
    if (mprotect(first, whole, PROT_READ | PROT_WRITE)) {
        leave_granules(granule);
        return NULL;
    }
    memset(first, SLACK, (size_t)(data - first));
    memset(data + own, SLACK, (size_t)(first + whole - data) - own);
    if (!zero) fill_contents(data, own);
    return data;
}

static size_t granule_of(void *data) {
    size_t granule = (size_t)((char *)data - range) / GRANULE;
    if (is_live(granule) && data_of(granule) == data) return granule;
    tell("freed", 0, "twice, or what begins no array, at an array of", granule);
    abort();
}

static void *guarded_malloc(void *context, size_t size) {
    void *made_now = new_block(size, 0);
    if (made_now) return made_now;
    __atomic_add_fetch(&unguarded, 1, __ATOMIC_RELAXED);
    return original.malloc(context, size);
}

static void *guarded_calloc(void *context, size_t count, size_t each) {
    size_t size;
    if (__builtin_mul_overflow(count, each, &size)) return NULL;
    void *made_now = new_block(size, 1);
    if (made_now) return made_now;
    __atomic_add_fetch(&unguarded, 1, __ATOMIC_RELAXED);
    return original.calloc(context, count, each);
}

static void guarded_free(void *context, void *data, size_t size) {
    if (!in_range(data)) {
        original.free(context, data, size);
        return;
    }
    size_t granule = granule_of(data), own = sizes[granule];
    unsigned char *first = (unsigned char *)first_page(granule), *begin = data, *place;
    unsigned char *end = first + pages_of(own) * PAGE;
    for (place = first; place < end; place++) {
        if (place == begin) place += own;
        if (place == end || *place == SLACK) continue;
        if (place < begin) tell("wrote", (size_t)(begin - place), "before an array of", granule);
        else tell("wrote", (size_t)(place - begin - own), "behind the end of an array of", granule);
        abort();
    }
    /* Fresh pages: the old ones go, and nobody may touch what is in their place. */
    if (mmap(first, (size_t)(end - first), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED) abort();
    leave_granules(granule);
}

static void *guarded_realloc(void *context, void *data, size_t size) {
    if (data && !in_range(data)) return original.realloc(context, data, size);
    void *grown = guarded_malloc(context, size);
    if (data && grown) {
        size_t before = sizes[granule_of(data)];
        memcpy(grown, data, before < size ? before : size);
        guarded_free(context, data, before);
    }
    return grown;
}

/* For Python ---------------------------------------------------------------------------------- */

/* Put the functions in the place of those of an allocator; 0, or -1 where addresses are refused. */
int start(Allocator *numpys, int front, int filled, size_t most, int descriptor) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    range = mmap(NULL, GRANULES * GRANULE, PROT_NONE, flags, -1, 0);
    sizes = mmap(NULL, GRANULES * sizeof *sizes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (range == MAP_FAILED || sizes == MAP_FAILED || sysconf(_SC_PAGESIZE) != PAGE) return -1;
    at_front = front, contents = filled, most_live = most, errors = descriptor;
    pthread_atfork(take_lock, leave_lock, leave_lock);
    original = *numpys;
    numpys->malloc = guarded_malloc;
    numpys->calloc = guarded_calloc;
    numpys->realloc = guarded_realloc;
    numpys->free = guarded_free;
    return 0;
}

/* Explain faults from now on: called when Python's own handler is in place. */
void watch(void) {
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigaction(SIGSEGV, &action, &earlier[0]);
    sigaction(SIGBUS, &action, &earlier[1]);
}

void figures(size_t *found) { found[0] = made, found[1] = live, found[2] = unguarded; }

/* Whether arithmetic of this thread has taken in denormal numbers since the last call; -1 where the
   processor does not note it. */
int took_denormals(void) {
#ifdef __SSE__
    unsigned word = _mm_getcsr();
    _mm_setcsr(word & ~2u);
    return (word & 2u) != 0;
#else
    return -1;
#endif
}
