// Backends: their statistics in Envoy, and what a worker thread learns about them.

#ifndef SLIPWAY_BACKEND_H
#define SLIPWAY_BACKEND_H

#include "text.h"

#define MAX_ID 32  // bytes of the identity of a backend

// Counters, and histograms from FIRST_TOKEN_US on; `backend.c` has their names.
typedef enum {
  PROMPT_ADMITTED,
  OUTPUT_ADMITTED,
  REQUESTS_ADMITTED,
  STARTED_ADMITTED,
  PROMPT_SETTLED,
  OUTPUT_SETTLED,
  REQUESTS_SETTLED,
  STARTED_SETTLED,
  UNREAD_SETTLED,
  PROMPT_TOKENS,
  GENERATED_TOKENS,
  FIRST_TOKEN_US,
  INTER_TOKEN_US,
  STATISTICS
} Statistic;

// Envoy's numbers of the statistics, which belong to the configuration of one filter.
typedef struct {
  size_t ids[STATISTICS];
} StatisticIds;

// Of all samples at first, later of some 20.
typedef struct {
  double value;
  unsigned samples;
} Mean;

typedef struct Backend {
  struct Backend* next;
  char id[MAX_ID];
  size_t id_size;
  Mean output_tokens;    // of an answer
  Mean bytes_per_token;  // of a prompt
  int64_t surplus;       // generated tokens that were counted and do not exist
} Backend;

// Where a request's statistics are counted.
typedef struct {
  const StatisticIds* ids;
  void* filter;  // Envoy's, of the current call
  Backend* backend;
} Meter;

// Defines the statistics; returns whether Envoy accepts them.
bool define_statistics(void* configuration, StatisticIds* ids);

// Returns this thread's backend of an identity, which lives as long as the process; NULL if the identity is
// too long. A worker thread has all requests of its connections, so no other thread reads the backend.
Backend* backend_of(Text id);

void mean_learn(Mean* mean, double sample);

// Adds to a counter; numbers below one are ignored.
void count(const Meter* meter, Statistic counter, int64_t number);

// Counts generated tokens; a negative number is subtracted from those of later answers.
void count_generated(const Meter* meter, int64_t number);

// Adds a value to a histogram, a negative one as 0.
void observe(const Meter* meter, Statistic histogram, int64_t value);

#endif
