// Counts answers and their durations by cluster, in memory that the gateway reads (`answers.py`).
//
// A row is never given back while Envoy runs, so that no thread can count in the row of another cluster.

#ifndef SLIPWAY_ANSWERS_H
#define SLIPWAY_ANSWERS_H

#include "text.h"

#define ANSWER_CLASSES 5   // 1xx to 5xx
#define ANSWER_BUCKETS 17  // one for each bound of durations, and one above

// Returns whether the memory exists; creates it at the first call.
bool answers_open(void);

// Counts one answer.
//
// `status` is of HTTP; an answer without one is not counted. A negative duration (microseconds) is unknown.
void answers_count(Text cluster, uint32_t status, int64_t duration);

#endif
