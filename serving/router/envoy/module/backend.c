#include "backend.h"

#include <stdlib.h>

#include "envoy_abi.h"

#define GAIN 0.05          // weight of a new sample in a mean
#define OUTPUT_TOKENS 128  // expected length of the first answer
#define BYTES_PER_TOKEN 4  // of the first prompt
#define BUCKETS 256

static const Text NAMES[STATISTICS] = {
    [PROMPT_ADMITTED] = {"prompt_admitted", 15},     [OUTPUT_ADMITTED] = {"output_admitted", 15},
    [REQUESTS_ADMITTED] = {"requests_admitted", 17}, [STARTED_ADMITTED] = {"started_admitted", 16},
    [PROMPT_SETTLED] = {"prompt_settled", 14},       [OUTPUT_SETTLED] = {"output_settled", 14},
    [REQUESTS_SETTLED] = {"requests_settled", 16},   [STARTED_SETTLED] = {"started_settled", 15},
    [UNREAD_SETTLED] = {"unread_settled", 14},       [PROMPT_TOKENS] = {"prompt_tokens", 13},
    [GENERATED_TOKENS] = {"generated_tokens", 16},   [FIRST_TOKEN_US] = {"first_token_us", 14},
    [INTER_TOKEN_US] = {"inter_token_us", 14},
};

bool define_statistics(void* configuration, StatisticIds* ids) {
  Text label = LITERAL("backend");
  for (size_t each = 0; each < STATISTICS; each++) {
    int result = each < FIRST_TOKEN_US ? envoy_dynamic_module_callback_http_filter_config_define_counter(
                                             configuration, NAMES[each], &label, 1, &ids->ids[each])
                                       : envoy_dynamic_module_callback_http_filter_config_define_histogram(
                                             configuration, NAMES[each], &label, 1, &ids->ids[each]);
    if (result != ENVOY_SUCCESS) return false;
  }
  return true;
}

Backend* backend_of(Text id) {
  static _Thread_local Backend* buckets[BUCKETS];
  uint32_t hash = 2166136261u;
  for (size_t at = 0; at < id.size; at++) hash = (hash ^ (unsigned char)id.data[at]) * 16777619u;
  Backend** bucket = &buckets[hash % BUCKETS];
  for (Backend* backend = *bucket; backend; backend = backend->next)
    if (text_is((Text){backend->id, backend->id_size}, id)) return backend;
  if (id.size == 0 || id.size > MAX_ID) return NULL;
  Backend* backend = calloc(1, sizeof(Backend));
  if (!backend) abort();
  memcpy(backend->id, id.data, id.size);
  backend->id_size = id.size;
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

void count(const Meter* meter, Statistic counter, int64_t number) {
  if (number <= 0) return;
  Text id = {meter->backend->id, meter->backend->id_size};
  envoy_dynamic_module_callback_http_filter_increment_counter(meter->filter, meter->ids->ids[counter], &id, 1,
                                                              (uint64_t)number);
}

void count_generated(const Meter* meter, int64_t number) {
  int64_t total = number - meter->backend->surplus;
  count(meter, GENERATED_TOKENS, total);
  meter->backend->surplus = total < 0 ? -total : 0;
}

void observe(const Meter* meter, Statistic histogram, int64_t value) {
  Text id = {meter->backend->id, meter->backend->id_size};
  envoy_dynamic_module_callback_http_filter_record_histogram_value(meter->filter, meter->ids->ids[histogram],
                                                                   &id, 1, value > 0 ? (uint64_t)value : 0);
}
