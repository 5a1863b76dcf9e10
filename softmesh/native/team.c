#include "team.h"

typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned); /* OpenMP's, as GNU names and calls it */
typedef int (*Count)(void);

static Parallel parallel;
static Count thread_number, team_size;

typedef struct {
    Share share;
    const void *work;
} Task;

static void by_member(void *task)
{
    const Task *given = task;
    given->share(given->work, thread_number(), team_size());
}

void softmesh_in_shares(Share share, const void *work, int64_t threads)
{
    Task task = {share, work};
    if (threads > 1)
        parallel(by_member, &task, (unsigned)threads, 0);
    else
        share(work, 0, 1);
}

void softmesh_team(void *openmp_parallel, void *number, void *size)
{
    parallel = (Parallel)openmp_parallel;
    thread_number = (Count)number;
    team_size = (Count)size;
}
