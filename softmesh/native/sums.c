/* Sums over the pieces of many devices, piece after piece, in fp32, rounded once: as fast as memory is read. */

#include <string.h>

#include "team.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

/* Two bfloat16 are a word wherever they lie. */
#if defined(__GNUC__)
typedef uint32_t Word __attribute__((aligned(2), may_alias));
typedef uint16_t Half __attribute__((may_alias));
#else
typedef uint32_t Word;
typedef uint16_t Half;
#endif

/* What a row is made of: words of one float32, words of two bfloat16, or single bfloat16, where their number is odd. */
enum { FLOAT32 = 0, BFLOAT16 = 1, ODD_BFLOAT16 = 2 };

/* Units at a time: what is added up of them stays in the nearest cache. */
enum { BLOCK = 2048 };

/* Rows of `units` each: `pieces` of them, one after the other, are added up to one, `groups` times. */
typedef struct {
    int64_t groups, pieces, units, kind;
} Stack;

typedef struct {
    const Stack *stack;
    const char *data;
    char *sums;
} Work;

static inline float as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t as_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Of a word that holds two bfloat16: a bfloat16 is the upper half of a float. */
static inline float lower(uint32_t word) { return as_float(word << 16); }
static inline float upper(uint32_t word) { return as_float(word & 0xffff0000u); }

/* To the nearest bfloat16, of two equally near ones the even one; the lower half is left to be dropped. */
static inline uint32_t rounded(float value)
{
    uint32_t bits = as_bits(value);
    return value != value ? 0x7fc00000u : bits + 0x7fffu + (bits >> 16 & 1);
}

static inline uint32_t packed(float low, float high) { return rounded(low) >> 16 | (rounded(high) & 0xffff0000u); }

/* To `start` the values of four rows, in their order. */
#define FOUR(value, start, row) \
    ((start) + value((row)[i]) + value((row)[i + words]) + value((row)[i + 2 * words]) + value((row)[i + 3 * words]))

FOR_EACH_CPU static void add_float32(const Word *row, Word *sums, int64_t pieces, int64_t words, int64_t n)
{
    float sum[BLOCK];
    int64_t left = pieces;
    if (pieces == 8) {
        for (int64_t i = 0; i < n; i++)
            sums[i] = as_bits(FOUR(as_float, FOUR(as_float, 0.0f, row), row + 4 * words));
        return;
    }
    memset(sum, 0, n * sizeof *sum);
    for (; left >= 4; left -= 4, row += 4 * words)
        for (int64_t i = 0; i < n; i++)
            sum[i] = FOUR(as_float, sum[i], row);
    for (; left > 0; left--, row += words)
        for (int64_t i = 0; i < n; i++)
            sum[i] += as_float(row[i]);
    memcpy(sums, sum, n * sizeof *sum);
}

FOR_EACH_CPU static void add_bfloat16(const Word *row, Word *sums, int64_t pieces, int64_t words, int64_t n)
{
    float low[BLOCK], high[BLOCK];
    int64_t left = pieces;
    if (pieces == 8) {
        for (int64_t i = 0; i < n; i++)
            sums[i] = packed(FOUR(lower, FOUR(lower, 0.0f, row), row + 4 * words),
                             FOUR(upper, FOUR(upper, 0.0f, row), row + 4 * words));
        return;
    }
    memset(low, 0, n * sizeof *low);
    memset(high, 0, n * sizeof *high);
    for (; left >= 4; left -= 4, row += 4 * words)
        for (int64_t i = 0; i < n; i++) {
            low[i] = FOUR(lower, low[i], row);
            high[i] = FOUR(upper, high[i], row);
        }
    for (; left > 0; left--, row += words)
        for (int64_t i = 0; i < n; i++) {
            low[i] += lower(row[i]);
            high[i] += upper(row[i]);
        }
    for (int64_t i = 0; i < n; i++)
        sums[i] = packed(low[i], high[i]);
}

FOR_EACH_CPU static void add_odd_bfloat16(const Half *row, Half *sums, int64_t pieces, int64_t units, int64_t n)
{
    float sum[BLOCK];
    memset(sum, 0, n * sizeof *sum);
    for (; pieces > 0; pieces--, row += units)
        for (int64_t i = 0; i < n; i++)
            sum[i] += lower(row[i]);
    for (int64_t i = 0; i < n; i++)
        sums[i] = rounded(sum[i]) >> 16;
}

/* Blocks are dealt out in runs, one to each of the team: neighbours in memory stay together. */
static void add_share(const void *given, int64_t member, int64_t members)
{
    const Work *work = given;
    const Stack *stack = work->stack;
    int64_t pieces = stack->pieces, units = stack->units;
    int64_t size = stack->kind == ODD_BFLOAT16 ? sizeof(Half) : sizeof(Word);
    int64_t per_row = (units + BLOCK - 1) / BLOCK, blocks = stack->groups * per_row;
    for (int64_t block = blocks * member / members; block < blocks * (member + 1) / members; block++) {
        int64_t group = block / per_row, first = block % per_row * BLOCK;
        int64_t n = units - first < BLOCK ? units - first : BLOCK;
        const void *row = work->data + (group * pieces * units + first) * size;
        void *sums = work->sums + (group * units + first) * size;
        if (stack->kind == FLOAT32)
            add_float32(row, sums, pieces, units, n);
        else if (stack->kind == BFLOAT16)
            add_bfloat16(row, sums, pieces, units, n);
        else
            add_odd_bfloat16(row, sums, pieces, units, n);
    }
}

const int64_t softmesh_sum_form = sizeof(Stack);

void softmesh_sum(const Stack *stack, const void *data, void *sums, int64_t threads)
{
    Work work = {stack, data, sums};
    softmesh_in_shares(add_share, &work, threads);
}
