#include "answers.h"

#include "table.h"

static const int64_t BOUNDS[DURATION_BUCKETS - 1] = {  // microseconds
    1000,   2500,    5000,    10000,   25000,    50000,    100000,   250000,
    500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 300000000,
};

void answers_count(Text cluster, uint32_t status, int64_t duration) {
  uint32_t class = status / 100;
  if (class < 1) return;
  if (class > ANSWER_CLASSES) class = ANSWER_CLASSES;  // a client takes 600 and above for 5xx (RFC 9110, 15)
  Row* row = table_row(cluster);
  if (!row) return;
  add(&row->classes[class - 1], 1);
  if (duration < 0) return;
  add(&row->durations[bucket_of(duration, BOUNDS, DURATION_BUCKETS - 1)], 1);
  add(&row->microseconds, (uint64_t)duration);
}
