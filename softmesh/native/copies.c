/* Copies of runs of bytes that lie apart. Those that no cache holds are written past the caches, which spares reading
   what is overwritten. */

#include <string.h>

#include "team.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <emmintrin.h>
#define STREAMS 1
#endif

enum { MOST_DIMS = 8, LANE = 16, LINE = 64, SHORT_RUN = 1 << 14 };

/* Runs of `run` bytes, one after the other in the copy; in the source they lie `strides` bytes apart along each dim. */
typedef struct {
    int64_t run, past_caches, dims, sizes[MOST_DIMS], strides[MOST_DIMS];
} Runs;

typedef struct {
    const Runs *runs;
    const char *from;
    char *to;
} Work;

#ifdef STREAMS

static inline void copy_lane(const char *from, char *to, int past_caches)
{
    __m128i lane = _mm_loadu_si128((const __m128i *)from);
    if (past_caches)
        _mm_stream_si128((__m128i *)to, lane);
    else
        _mm_storeu_si128((__m128i *)to, lane);
}

/* Past the caches, `to` must be aligned to a lane, and `count` a multiple of it. The run after this one begins at
   `next`: hardware looks ahead within a page, and a short run has little of one. */
static inline void copy_run(const char *from, char *to, int64_t count, const char *next, int past_caches)
{
    int64_t at = 0, ahead = count <= SHORT_RUN;
    for (; at + LINE <= count; at += LINE) {
        if (ahead)
            _mm_prefetch(next + at, _MM_HINT_T0);
        for (int lane = 0; lane < LINE; lane += LANE)
            copy_lane(from + at + lane, to + at + lane, past_caches);
    }
    for (; at + LANE <= count; at += LANE)
        copy_lane(from + at, to + at, past_caches);
    memcpy(to + at, from + at, count - at);
}

static inline void settle(void) { _mm_sfence(); }

#else

static inline void copy_run(const char *from, char *to, int64_t count, const char *next, int past_caches)
{
    (void)next, (void)past_caches;
    memcpy(to, from, count);
}

static inline void settle(void) {}

#endif

/* Where a run lies in the source. */
typedef struct {
    int64_t index[MOST_DIMS], offset;
} Place;

static Place place_of(const Runs *runs, int64_t number)
{
    Place place = {{0}, 0};
    for (int64_t dim = runs->dims - 1; dim >= 0; dim--) {
        place.index[dim] = number % runs->sizes[dim];
        place.offset += place.index[dim] * runs->strides[dim];
        number /= runs->sizes[dim];
    }
    return place;
}

static inline void step(const Runs *runs, Place *place)
{
    for (int64_t dim = runs->dims - 1; dim >= 0; dim--) {
        place->offset += runs->strides[dim];
        if (++place->index[dim] < runs->sizes[dim])
            return;
        place->offset -= place->index[dim] * runs->strides[dim];
        place->index[dim] = 0;
    }
}

static void copy_share(const void *given, int64_t member, int64_t members)
{
    const Work *work = given;
    const Runs *runs = work->runs;
    int64_t count = 1;
    for (int64_t dim = 0; dim < runs->dims; dim++)
        count *= runs->sizes[dim];
    int64_t first = count * member / members, last = count * (member + 1) / members;
    if (first == last)
        return;
    Place place = place_of(runs, first);
    for (int64_t at = first; at < last; at++) {
        const char *from = work->from + place.offset;
        char *to = work->to + at * runs->run;
        step(runs, &place); /* after the very last: back to the first */
        if (runs->past_caches)
            copy_run(from, to, runs->run, work->from + place.offset, 1);
        else
            copy_run(from, to, runs->run, work->from + place.offset, 0);
    }
    settle();
}

const int64_t softmesh_copy_form = sizeof(Runs);

void softmesh_copy(const Runs *runs, const void *from, void *to, int64_t threads)
{
    Work work = {runs, from, to};
    softmesh_in_shares(copy_share, &work, threads);
}
