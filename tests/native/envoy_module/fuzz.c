// One request and its answer, as libFuzzer chooses them, in the filters of the module with a fake of Envoy.
//
// The input is: a byte of flags; a byte with the path's number, the answer's coding, its cluster, the largest
// request and its length; the size of parts of the answer; two bytes with the size of the request's body; the
// body; and the answer. Every piece that the module reads is a block of memory of its own, so that
// AddressSanitizer sees a read behind it, and of a piece that was drained.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "envoy_abi.h"
#include "json.h"
#include "table.h"

#define MAX_CHUNKS 64
#define CHECK(condition)                             \
  do {                                               \
    if (!(condition)) {                              \
      fprintf(stderr, "not true: %s\n", #condition); \
      abort();                                       \
    }                                                \
  } while (0)

enum {
  MODELS = 1,
  CONTINUOUS = 2,
  STREAM = 4,
  TRAILERS = 8,
  SPLIT = 16,
  ABORTED = 32,
  FAILED = 64,
  GET = 128
};

typedef struct {
  Text chunks[MAX_CHUNKS];
  size_t count;
} Body;

static const char* const PATHS[] = {
    "/v1/chat/completions?a=b",      "/v1/completions",
    "/n/openai/v1/models/chat",      "/n/openai/v1/models",
    "/n/openai/v1/models/",          "/",
    "/n/openai/v1/chat/completions", "/n",
};

static uint8_t flags;
static Body bodies[4];
static Text path;
static bool has_answer, has_coding, has_replied, has_moved, is_routed, was_cleared;
static const Text CLUSTERS[] = {{"n/chat-a/8080", 13}, {"n/chat-b/8080", 13}};
static size_t most_bytes;  // of a request
static bool has_length;           // in the headers
static uint64_t buffer_limit;     // as the module has set it
static size_t length_of_request;  // in the headers, at last as the module has set it
static Text cluster, grpc_status;  // as the logger of the answer gets them

// ---------------------------------------------------------------- the fake

static Text copied(Text text) {
  char* data = malloc(text.size ? text.size : 1);
  CHECK(data);
  if (text.size) memcpy(data, text.data, text.size);
  return (Text){data, text.size};
}

static void clear(Body* body) {
  for (size_t each = 0; each < body->count; each++) free((char*)body->chunks[each].data);
  body->count = 0;
}

static void add_chunk(Body* body, Text text) {
  CHECK(body->count < MAX_CHUNKS);
  body->chunks[body->count++] = copied(text);
}

static size_t size_of(const Body* body) {
  size_t size = 0;
  for (size_t each = 0; each < body->count; each++) size += body->chunks[each].size;
  return size;
}

bool envoy_dynamic_module_callback_http_get_header(void* filter, int headers, Text name, Text* value,
                                                   size_t index, size_t* count_of_values) {
  CHECK(filter && index == 0);
  *value = (Text){NULL, 0};
  if (headers == ENVOY_RESPONSE_HEADERS && text_is(name, LITERAL("content-encoding"))) {
    if (has_coding) *value = LITERAL("gzip");
    *count_of_values = has_coding;
    return has_coding;
  }
  CHECK(!count_of_values);
  if (headers == ENVOY_REQUEST_HEADERS && text_is(name, LITERAL(":path"))) *value = path;
  if (headers == ENVOY_REQUEST_HEADERS && text_is(name, LITERAL("content-length")) && has_length)
    *value = LITERAL("1");
  if (headers == ENVOY_REQUEST_HEADERS && text_is(name, LITERAL(":method")))
    *value = flags & GET ? LITERAL("GET") : LITERAL("POST");
  if (headers == ENVOY_RESPONSE_HEADERS && text_is(name, LITERAL(":status")))
    *value = flags & FAILED ? LITERAL("503") : LITERAL("200");
  if (headers == ENVOY_RESPONSE_HEADERS && text_is(name, LITERAL("content-type")) && flags & STREAM)
    *value = LITERAL("text/event-stream; charset=utf-8");
  return value->data != NULL;
}

bool envoy_dynamic_module_callback_http_set_header(void* filter, int headers, Text name, Text value) {
  CHECK(filter && (headers == ENVOY_REQUEST_HEADERS || headers == ENVOY_RESPONSE_HEADERS));
  if (text_is(name, LITERAL(":path"))) {
    CHECK(value.size > 3 && text_has_at(value, 0, LITERAL("/n/")));
    Text changed = copied(value);
    free((char*)path.data);
    path = changed;
    is_routed = true;
  } else if (text_is(name, LITERAL("accept-encoding"))) {
    CHECK(headers == ENVOY_REQUEST_HEADERS && text_is(value, LITERAL("identity")));
  } else {
    CHECK(text_is(name, LITERAL("content-length")));
    if (headers == ENVOY_REQUEST_HEADERS) length_of_request = (size_t)json_number(value);
  }
  return true;
}

void envoy_dynamic_module_callback_http_send_response(void* filter, uint32_t status, EnvoyHeader* headers,
                                                      size_t header_count, Text body, Text details) {
  CHECK(filter && details.size && !has_replied);
  CHECK(body.size);
  if (status == 413) CHECK(header_count == 0);
  else CHECK((status == 200 || status == 400 || status == 404) && header_count == 1 && headers);
  has_replied = true;
}

size_t envoy_dynamic_module_callback_http_get_body_chunks_size(void* filter, int body) {
  CHECK(filter && body >= 0 && body < 4);
  return bodies[body].count;
}

bool envoy_dynamic_module_callback_http_get_body_chunks(void* filter, int body, Text* chunks) {
  CHECK(filter && body >= 0 && body < 4);
  for (size_t each = 0; each < bodies[body].count; each++) chunks[each] = bodies[body].chunks[each];
  return true;
}

size_t envoy_dynamic_module_callback_http_get_body_size(void* filter, int body) {
  CHECK(filter && body == ENVOY_RECEIVED_REQUEST);
  return size_of(&bodies[body]);
}

bool envoy_dynamic_module_callback_http_append_body(void* filter, int body, Text text) {
  CHECK(filter && body >= 0 && body < 4 && text.size);
  add_chunk(&bodies[body], text);
  return true;
}

bool envoy_dynamic_module_callback_http_drain_body(void* filter, int body, size_t size) {
  CHECK(filter && body >= 0 && body < 4 && size);
  Body drained = bodies[body];
  bodies[body].count = 0;
  for (size_t each = 0; each < drained.count; each++) {
    Text chunk = drained.chunks[each];
    size_t removed = size < chunk.size ? size : chunk.size;
    size -= removed;
    if (removed < chunk.size) add_chunk(&bodies[body], text_part(chunk, removed, chunk.size));
    free((char*)chunk.data);
  }
  return true;
}

void envoy_dynamic_module_callback_http_set_buffer_limit(void* filter, uint64_t limit) {
  CHECK(filter);
  buffer_limit = limit;
}

bool envoy_dynamic_module_callback_http_received_buffered_request_body(void* filter) {
  CHECK(filter);
  return !(flags & SPLIT);
}

bool envoy_dynamic_module_callback_http_get_metadata_string(void* filter, int source, Text space, Text key,
                                                            Text* value) {
  CHECK(filter && source == ENVOY_ROUTE_METADATA && text_is(space, LITERAL("slipway.tokens")));
  *value = (Text){NULL, 0};
  if (text_is(key, CLUSTERS[0]) || text_is(key, CLUSTERS[1]))
    *value = flags & CONTINUOUS ? LITERAL("continuous") : LITERAL("final");
  if (text_is(key, LITERAL("base"))) *value = LITERAL("/n/");
  if (text_is(key, LITERAL("list"))) *value = LITERAL("{\"data\":[]}");
  if (text_is(key, LITERAL("model:chat"))) *value = LITERAL("{\"id\":\"chat\"}");
  return value->data != NULL;
}

void envoy_dynamic_module_callback_http_set_dynamic_metadata_string(void* filter, Text space, Text key,
                                                                    Text value) {
  CHECK(filter && space.size && key.size && value.size);
}

bool envoy_dynamic_module_callback_http_filter_get_attribute_string(void* filter, int attribute,
                                                                    Text* value) {
  CHECK(filter && attribute == ENVOY_UPSTREAM_ADDRESS);
  *value = has_coding     ? (Text){NULL, 0}  // no replica has got the request
           : flags & SPLIT ? LITERAL("/data/activator/0123")
                           : LITERAL("127.0.0.1:8080");
  return value->data != NULL;
}

bool envoy_dynamic_module_callback_http_get_cluster_name(void* filter, Text* name) {
  CHECK(filter);
  *name = CLUSTERS[has_answer && has_moved];
  return true;
}

void envoy_dynamic_module_callback_http_clear_route_cache(void* filter) {
  CHECK(filter && is_routed);
  was_cleared = true;
}

bool envoy_dynamic_module_callback_access_logger_get_upstream_cluster(void* logger, Text* name) {
  CHECK(logger);
  *name = cluster;
  return cluster.data != NULL;
}

uint32_t envoy_dynamic_module_callback_access_logger_get_response_code(void* logger) {
  CHECK(logger);
  return flags & FAILED ? 503 : flags & ABORTED ? 0 : 200;
}

bool envoy_dynamic_module_callback_access_logger_get_header_value(void* logger, int headers, Text name,
                                                                  Text* value, size_t index,
                                                                  size_t* count_of_values) {
  CHECK(logger && text_is(name, LITERAL("grpc-status")) && index == 0 && !count_of_values);
  *value = headers == (flags & TRAILERS ? ENVOY_RESPONSE_TRAILERS : ENVOY_RESPONSE_HEADERS) ? grpc_status
                                                                                         : (Text){NULL, 0};
  return value->data != NULL;
}

void envoy_dynamic_module_callback_access_logger_get_timing_info_v2(void* logger, EnvoyTimes* times) {
  CHECK(logger);
  times->request_received = flags & SPLIT ? INT64_MAX : 1000;
  times->answer_received = flags & ABORTED ? -1 : (int64_t)grpc_status.size << 20;
}

// ---------------------------------------------------------------- a request and its answer

// Sends the answer in parts of one piece, or of two pieces of an even size; returns what the client got.
static Buffer answered(void* filter, void* own, Text answer, size_t piece) {
  Buffer got = {NULL, 0, 0};
  Text sent = text_part(answer, 0, flags & ABORTED ? answer.size / 2 : answer.size);
  Body* body = &bodies[ENVOY_RECEIVED_RESPONSE];
  size_t part = piece % 2 ? piece : 2 * piece;
  for (size_t at = 0; at < sent.size; at += part) {
    for (size_t first = at; first < at + part && first < sent.size; first += piece)
      add_chunk(body, text_part(sent, first, first + piece));
    bool is_last = at + part >= sent.size && !(flags & (ABORTED | TRAILERS));
    CHECK(envoy_dynamic_module_on_http_filter_response_body(filter, own, is_last) == ENVOY_CONTINUE);
    for (size_t each = 0; each < body->count; each++) buffer_append(&got, body->chunks[each]);
    clear(body);
  }
  if (flags & TRAILERS && !(flags & ABORTED)) {
    envoy_dynamic_module_on_http_filter_response_trailers(filter, own);
    body = &bodies[ENVOY_BUFFERED_RESPONSE];
    for (size_t each = 0; each < body->count; each++) buffer_append(&got, body->chunks[each]);
  }
  return got;
}

// Sends a request that is read and too large, in three parts: the reply follows the last part.
static void refused(void* filter, void* own, Text body) {
  Body* part = &bodies[ENVOY_RECEIVED_REQUEST];
  size_t sent = 0, step = body.size / 3 + 1;
  while (sent < body.size && !has_replied) {
    add_chunk(part, text_part(body, sent, sent + step));
    sent += size_of(part);
    bool is_last = sent == body.size && !(flags & TRAILERS);
    int status = envoy_dynamic_module_on_http_filter_request_body(filter, own, is_last);
    CHECK(status == (sent > most_bytes ? ENVOY_STOP_AND_DISCARD : ENVOY_STOP));
    CHECK(has_replied == (sent > most_bytes && (is_last || sent / 16 > most_bytes)));
    clear(part);
  }
  if (!has_replied) CHECK(envoy_dynamic_module_on_http_filter_request_trailers(filter, own) == ENVOY_STOP);
  CHECK(has_replied);
}

// Keeps the received part of a request, as Envoy does where a filter stops there.
static void keep_received(void) {
  Body *received = &bodies[ENVOY_RECEIVED_REQUEST], *kept = &bodies[ENVOY_BUFFERED_REQUEST];
  for (size_t each = 0; each < received->count; each++) {
    CHECK(kept->count < MAX_CHUNKS);
    kept->chunks[kept->count++] = received->chunks[each];
  }
  received->count = 0;
}

static bool requested(void* filter, void* own, Text body) {
  int status = envoy_dynamic_module_on_http_filter_request_headers(filter, own, body.size == 0);
  CHECK(!has_replied || status == ENVOY_STOP);
  if (has_replied || body.size == 0) return !has_replied;
  CHECK(status == ENVOY_STOP);
  CHECK(buffer_limit == most_bytes);
  if (body.size > most_bytes) {
    refused(filter, own, body);
    return false;
  }
  size_t half = flags & (SPLIT | TRAILERS) ? body.size / 2 : 0;
  if (half) {
    add_chunk(&bodies[ENVOY_RECEIVED_REQUEST], text_part(body, 0, half));
    CHECK(envoy_dynamic_module_on_http_filter_request_body(filter, own, false) == ENVOY_STOP);
    keep_received();
  }
  add_chunk(&bodies[ENVOY_RECEIVED_REQUEST], text_part(body, half, body.size));
  if (flags & TRAILERS) {
    CHECK(envoy_dynamic_module_on_http_filter_request_body(filter, own, false) == ENVOY_STOP);
    keep_received();
    status = envoy_dynamic_module_on_http_filter_request_trailers(filter, own);
  } else {
    status = envoy_dynamic_module_on_http_filter_request_body(filter, own, true);
  }
  size_t size = size_of(&bodies[ENVOY_RECEIVED_REQUEST]) + size_of(&bodies[ENVOY_BUFFERED_REQUEST]);
  CHECK(size + 64 > body.size || text_contains(body, LITERAL("stream_options")));
  CHECK(has_replied == (status == ENVOY_STOP));
  CHECK(has_replied || length_of_request == size);
  return !has_replied;
}

// Logs an answer. Its cluster is one of few, as rows are never given back.
static void logged(Text answer, bool is_grpc) {
  static const char LONG[256] = "n/chat-a/8080";
  static int logger;
  static void* configurations[2];
  if (!configurations[0]) {
    configurations[0] = envoy_dynamic_module_on_access_logger_config_new(&logger, LITERAL("slipway.answers"),
                                                                         LITERAL(""));
    configurations[1] = envoy_dynamic_module_on_access_logger_config_new(
        &logger, LITERAL("slipway.answers.grpc"), LITERAL(""));
    CHECK(configurations[0] && configurations[1]);
  }
  Text name = flags & SPLIT ? (Text){LONG, flags} : text_part(answer, 0, 1);
  cluster = copied(name);
  grpc_status = copied(answer);
  void* own = envoy_dynamic_module_on_access_logger_new(configurations[is_grpc], &logger);
  envoy_dynamic_module_on_access_logger_log(&logger, own, 0);
  envoy_dynamic_module_on_access_logger_destroy(own);
  free((char*)cluster.data);
  free((char*)grpc_status.data);
}

// Fails if a request waits that has ended, or if a number cannot be.
static void check_counts(const Row* row, const Row* before) {
  uint64_t counted[TOKEN_COUNTERS];
  for (size_t each = 0; each < TOKEN_COUNTERS; each++) {
    counted[each] = row->tokens[each] - before->tokens[each];
    CHECK(counted[each] < (uint64_t)1 << 40);
  }
  CHECK(counted[PROMPT_ADMITTED] == counted[PROMPT_SETTLED]);
  CHECK(counted[OUTPUT_ADMITTED] == counted[OUTPUT_SETTLED]);
  CHECK(counted[REQUESTS_ADMITTED] == counted[REQUESTS_SETTLED] && counted[REQUESTS_ADMITTED] <= 1);
  CHECK(counted[STARTED_ADMITTED] == counted[STARTED_SETTLED]);
  uint64_t first_tokens = 0;
  for (size_t each = 0; each < LATENCY_BUCKETS; each++)
    first_tokens += row->first_token.buckets[each] - before->first_token.buckets[each];
  CHECK(first_tokens <= counted[REQUESTS_ADMITTED]);
  CHECK(counted[PROMPT_UNREPORTED] <= counted[PROMPT_ADMITTED]);
}

// Configures a filter with the largest request.
static void* configuration_of(void* envoy) {
  Text name = flags & MODELS ? LITERAL("slipway.models") : LITERAL("slipway.tokens");
  Buffer value = {NULL, 0, 0};
  CHECK(!envoy_dynamic_module_on_http_filter_config_new(envoy, name, LITERAL("x 1")));
  buffer_append_number(&value, most_bytes);
  buffer_append(&value, LITERAL(" digest"));
  void* configuration = envoy_dynamic_module_on_http_filter_config_new(envoy, name, buffer_text(&value));
  buffer_free(&value);
  CHECK(configuration);
  return configuration;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static int envoy;
  if (size < 5) return 0;
  flags = data[0];
  const char* chosen = PATHS[data[1] % 8];
  size_t part = data[2] ? data[2] : 4096, request_size = data[3] + 256u * data[4];
  Text whole = {(const char*)data + 5, size - 5};
  if (request_size > whole.size) request_size = whole.size;
  Text body = text_part(whole, 0, request_size), answer = text_part(whole, request_size, whole.size);
  path = copied((Text){chosen, strlen(chosen)});
  has_coding = data[1] & 64;
  has_moved = data[1] & 128;
  has_answer = has_replied = is_routed = was_cleared = false;
  most_bytes = data[1] & 32 ? 4u * data[2] : 1 << 20;
  void* configuration = configuration_of(&envoy);
  const Row* rows[] = {table_row(CLUSTERS[0]), table_row(CLUSTERS[1])};
  CHECK(rows[0] && rows[1]);
  const Row before[] = {*rows[0], *rows[1]};

  buffer_limit = 0;
  has_length = data[1] & 8;
  length_of_request = has_length ? body.size : SIZE_MAX;
  void* own = envoy_dynamic_module_on_http_filter_new(configuration, &envoy);
  if (requested(&envoy, own, body)) {
    CHECK(is_routed == was_cleared);
    has_answer = true;
    if (answer.size) envoy_dynamic_module_on_http_filter_response_headers(&envoy, own, false);
    Buffer got = answered(&envoy, own, answer, part);
    CHECK(got.size <= answer.size);
    bool is_read = flags & STREAM && !(flags & FAILED) && !has_coding;
    bool may_change = is_read && text_contains(body, LITERAL("true")) &&
                      text_contains(answer, LITERAL("\"usage\""));
    if (!may_change && !(flags & ABORTED)) CHECK(text_is(buffer_text(&got), answer));
    buffer_free(&got);
  }
  envoy_dynamic_module_on_http_filter_stream_complete(&envoy, own);
  envoy_dynamic_module_on_http_filter_destroy(own);
  envoy_dynamic_module_on_http_filter_config_destroy(configuration);
  logged(answer, data[1] & 1);
  check_counts(rows[0], &before[0]);
  check_counts(rows[1], &before[1]);
  for (size_t each = 0; each < 4; each++) clear(&bodies[each]);
  free((char*)path.data);
  return 0;
}
