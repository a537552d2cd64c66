#include "backend.h"

#include <stdlib.h>

#define GAIN 0.05          // weight of a new sample in a mean
#define OUTPUT_TOKENS 128  // expected length of the first answer
#define BYTES_PER_TOKEN 4  // of the first prompt
#define BUCKETS 256        // of a thread's hash table of backends
#define MAX_SURPLUS 100000  // tokens; a huge number that is taken back must not stop the counter for good

static const int64_t BOUNDS[LATENCY_BUCKETS - 1] = {  // microseconds
    1000,   2500,    5000,    10000,   20000,    50000,    100000,   200000,
    500000, 1000000, 2000000, 5000000, 10000000, 30000000, 60000000,
};

Backend* backend_of(Text cluster) {
  static _Thread_local Backend* buckets[BUCKETS];  // linked lists; without locks, as each thread has its own
  Row* row = table_row(cluster);
  if (!row) return NULL;
  Backend** bucket = &buckets[(uintptr_t)row / sizeof(Row) % BUCKETS];
  for (Backend* backend = *bucket; backend; backend = backend->next)
    if (backend->row == row) return backend;
  Backend* backend = calloc(1, sizeof(Backend));
  if (!backend) abort();
  backend->row = row;
  backend->output_tokens = (Mean){OUTPUT_TOKENS, 1};
  backend->bytes_per_token = (Mean){BYTES_PER_TOKEN, 1};
  backend->next = *bucket;
  *bucket = backend;
  return backend;
}

void mean_learn(Mean* mean, double sample) {
  if (mean->samples < 1 / GAIN) mean->samples++;
  mean->value += (sample - mean->value) / mean->samples;
}

void count(const Backend* backend, TokenCounter counter, int64_t number) {
  if (number > 0) add(&backend->row->tokens[counter], (uint64_t)number);
}

void count_generated(Backend* backend, int64_t number) {
  // Counters never fall: what cannot be taken back now reduces later numbers.
  int64_t total = number - backend->surplus;
  count(backend, GENERATED_TOKENS, total);
  backend->surplus = total < 0 ? -total : 0;
  if (backend->surplus > MAX_SURPLUS) backend->surplus = MAX_SURPLUS;
}

double mean_latency(const Latencies* latencies) {
  uint64_t number = 0;
  for (size_t bucket = 0; bucket < LATENCY_BUCKETS; bucket++)
    number += __atomic_load_n(&latencies->buckets[bucket], __ATOMIC_RELAXED);
  uint64_t sum = __atomic_load_n(&latencies->microseconds, __ATOMIC_RELAXED);
  return number ? (double)sum / (double)number : 0;
}

void observe(Latencies* latencies, int64_t time, int64_t number) {
  if (time < 0) time = 0;
  add(&latencies->buckets[bucket_of(time, BOUNDS, LATENCY_BUCKETS - 1)], (uint64_t)number);
  add(&latencies->microseconds, (uint64_t)(time * number));
}
