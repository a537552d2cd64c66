// Backends: their counts of tokens, and what a worker thread learns about them.

#ifndef SLIPWAY_BACKEND_H
#define SLIPWAY_BACKEND_H

#include "table.h"
#include "text.h"

// Of all samples at first, later of some 20.
typedef struct {
  double value;
  unsigned samples;
} Mean;

typedef struct Backend {
  struct Backend* next;
  Row* row;
  Mean output_tokens;    // of an answer
  Mean bytes_per_token;  // of a prompt
  int64_t surplus;       // generated tokens that were counted and do not exist
} Backend;

// Returns this thread's backend of a cluster, which lives as long as the process; NULL if the cluster has no
// row. A worker thread has all requests of its connections, so no other thread reads the backend.
Backend* backend_of(Text cluster);

void mean_learn(Mean* mean, double sample);

// Adds to a counter; numbers below one are ignored.
void count(const Backend* backend, TokenCounter counter, int64_t number);

// Counts generated tokens; a negative number is subtracted from those of later answers, up to some.
void count_generated(Backend* backend, int64_t number);

// Adds a time in microseconds `number` times, a negative one as 0.
void observe(Latencies* latencies, int64_t time, int64_t number);

#endif
