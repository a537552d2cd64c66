// Counts answers and their durations by cluster.

#ifndef SLIPWAY_ANSWERS_H
#define SLIPWAY_ANSWERS_H

#include "text.h"

// Counts one answer.
//
// `status` is of HTTP; an answer without one is not counted. A negative duration (microseconds) is unknown.
void answers_count(Text cluster, uint32_t status, int64_t duration);

#endif
