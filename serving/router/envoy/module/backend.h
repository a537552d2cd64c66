// The backend of a cluster in one worker thread: its token counters, which all threads share, and means that
// the thread learns from answers.

#ifndef SLIPWAY_BACKEND_H
#define SLIPWAY_BACKEND_H

#include "table.h"
#include "text.h"

// A running mean: of all samples up to 20; later samples have a weight of 1/20 each.
typedef struct {
  double value;
  unsigned samples;  // 20 at most; the expected value at the start is the first sample
} Mean;

typedef struct Backend {
  struct Backend* next;  // in the same bucket of the thread's hash table
  Row* row;              // the counters
  Mean output_tokens;    // of an answer
  Mean bytes_per_token;  // of a prompt
  int64_t surplus;       // tokens that GENERATED_TOKENS has too many, see count_generated
} Backend;

// Returns this thread's backend of a cluster, which is never freed; NULL if the cluster has no row. Envoy
// handles all requests of a connection in one worker thread, so a backend needs no lock.
Backend* backend_of(Text cluster);

// Returns the name of the backend's cluster.
static inline Text backend_name(const Backend* backend) {
  return (Text){backend->row->name, backend->row->name_size};
}

// Adds a sample to a mean.
void mean_learn(Mean* mean, double sample);

// Adds a number to a counter; a number below one is ignored.
void count(const Backend* backend, TokenCounter counter, int64_t number);

// Counts generated tokens. The number is negative where an engine reports fewer tokens than were counted. As
// counters never fall, it then adds to the surplus, up to MAX_SURPLUS, which later numbers are reduced by.
void count_generated(Backend* backend, int64_t number);

// Returns the mean of all latencies in microseconds; 0 without any.
double mean_latency(const Latencies* latencies);

// Adds `number` latencies of `time` microseconds each; a negative time counts as 0.
void observe(Latencies* latencies, int64_t time, int64_t number);

#endif
