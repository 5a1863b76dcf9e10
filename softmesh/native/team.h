/* The threads that torch has already. Nothing is linked: softmesh/native/c_kernels.py hands over the entry points. */

#ifndef SOFTMESH_TEAM_H
#define SOFTMESH_TEAM_H

#include <stdint.h>

/* Does the share of member 0, 1, ... of so many. */
typedef void (*Share)(const void *work, int64_t member, int64_t members);

void softmesh_in_shares(Share share, const void *work, int64_t threads);

#endif
