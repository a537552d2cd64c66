// The memory of counts by cluster, which the gateway reads (`counts/count_table.py`).
//
// A row is never given back while Envoy runs, so that no thread can count in the row of another cluster.

#ifndef SLIPWAY_TABLE_H
#define SLIPWAY_TABLE_H

#include "text.h"

#define MAX_CLUSTER 136      // bytes of the name of a cluster
#define ANSWER_CLASSES 5     // 1xx to 5xx
#define DURATION_BUCKETS 17  // one for each bound of durations, and one above
#define LATENCY_BUCKETS 16   // the same for latencies of tokens

// Counters of tokens. Admitted minus settled waits now: requests, the sum of their start times, and tokens. A
// request adds its amounts to the admitted counters at its beginning, and the same amounts to the settled
// counters as it stops waiting.
//
// The gateway reads without a lock, in the order of this enum: settled before admitted, so that it never sees
// more settled than admitted. The mean age of the queue is now - (sum of starts / requests): without one of
// the starts it would look too old. So a request adds to STARTED_ADMITTED before REQUESTS_ADMITTED, and to
// REQUESTS_SETTLED before STARTED_SETTLED: the sum has the start of each request that is seen waiting.
typedef enum {
  STARTED_SETTLED,  // start times, in tenths of a second since 2026-01-01
  REQUESTS_SETTLED,
  OUTPUT_SETTLED,  // expected tokens of answers
  PROMPT_SETTLED,  // estimated tokens of prompts
  PROMPT_ADMITTED,
  OUTPUT_ADMITTED,
  REQUESTS_ADMITTED,  // of streams alone: an answer as a whole does not show when its first token came
  STARTED_ADMITTED,
  PROMPT_UNREPORTED,  // estimated tokens of prompts that were read, whose request ended without a report
  PROMPT_TOKENS,      // tokens of prompts, as engines reported them
  GENERATED_TOKENS,
  TOKEN_COUNTERS  // their number
} TokenCounter;

typedef struct {
  uint64_t buckets[LATENCY_BUCKETS];
  uint64_t microseconds;  // the sum of all
} Latencies;

// The counts of one cluster since Envoy's start.
typedef struct {
  uint64_t name_size;
  char name[MAX_CLUSTER];
  uint64_t classes[ANSWER_CLASSES];      // answers by class
  uint64_t durations[DURATION_BUCKETS];  // answers by duration
  uint64_t microseconds;                 // the sum of all durations
  uint64_t tokens[TOKEN_COUNTERS];
  Latencies first_token, inter_token;
  uint64_t unused[2];
} Row;

// Returns whether the memory exists; creates it at the first call.
bool table_open(void);

// Returns the row of a cluster, a new one if there is none; NULL if there is no room, or the name is too
// long.
Row* table_row(Text cluster);

// Returns the bucket of a value in a histogram: the first bound that the value does not exceed, or `number`.
static inline size_t bucket_of(int64_t value, const int64_t* bounds, size_t number) {
  size_t bucket = 0;
  while (bucket < number && value > bounds[bucket]) bucket++;
  return bucket;
}

// Adds to a counter. Who sees the sum also sees what this thread has added to other counters before.
static inline void add(uint64_t* counter, uint64_t number) {
  __atomic_fetch_add(counter, number, __ATOMIC_RELEASE);
}

#endif
