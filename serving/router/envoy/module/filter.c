// What Envoy calls: reads requests and answers, and passes them on.
//
// A request is read as a whole, as its members may stand behind the prompt. Envoy buffers it up to the limit
// in the filter's configuration. An answer passes as it comes, except for a stream from which numbers of
// tokens are removed: there the beginning of an event waits until the event, or the answer, has ended. Envoy
// calls the module at every end of a request, that of an aborted one too.

#include "filter.h"

#include <stdlib.h>

#include "envoy_abi.h"
#include "json.h"

#define FEW_CHUNKS 16  // pieces of a body that need no memory of their own
#define MOST_DISCARDED 16  // times the limit: a body that goes on is refused before its end
#define ACTIVATOR_FOLDER LITERAL("/activator/")  // of the activator's sockets: `DataDir.activator`

Text request_header(void* filter, Text name) {
  Text value = {NULL, 0};
  bool found =
      envoy_dynamic_module_callback_http_get_header(filter, ENVOY_REQUEST_HEADERS, name, &value, 0, NULL);
  return found && value.data ? value : (Text){NULL, 0};
}

void set_request_header(void* filter, Text name, Text value) {
  envoy_dynamic_module_callback_http_set_header(filter, ENVOY_REQUEST_HEADERS, name, value);
}

static Text response_header(void* filter, Text name) {
  Text value = {NULL, 0};
  bool found =
      envoy_dynamic_module_callback_http_get_header(filter, ENVOY_RESPONSE_HEADERS, name, &value, 0, NULL);
  return found && value.data ? value : (Text){NULL, 0};
}

Text route_setting(void* filter, Text key) {
  Text value = {NULL, 0};
  bool found = envoy_dynamic_module_callback_http_get_metadata_string(filter, ENVOY_ROUTE_METADATA, METADATA,
                                                                      key, &value);
  return found && value.data ? value : (Text){NULL, 0};
}

Text without_query(Text path) { return text_part(path, 0, text_find(path, 0, '?')); }

// ---------------------------------------------------------------- bodies

// Appends a copy of a body.
static void append_body(void* filter, int body, Buffer* text) {
  size_t number = envoy_dynamic_module_callback_http_get_body_chunks_size(filter, body);
  if (number == 0) return;
  Text* chunks = calloc(number, sizeof(Text));
  if (!chunks) abort();
  if (envoy_dynamic_module_callback_http_get_body_chunks(filter, body, chunks))
    for (size_t each = 0; each < number; each++) buffer_append(text, chunks[each]);
  free(chunks);
}

static void replace_body(void* filter, int body, Text text) {
  envoy_dynamic_module_callback_http_drain_body(filter, body, SIZE_MAX);
  if (text.size) envoy_dynamic_module_callback_http_append_body(filter, body, text);
}

// ---------------------------------------------------------------- requests

static bool is_generation(void* filter) {
  Text path = without_query(request_header(filter, LITERAL(":path")));
  return (text_ends_with(path, LITERAL("/v1/chat/completions")) ||
          text_ends_with(path, LITERAL("/v1/completions"))) &&
         text_is(request_header(filter, LITERAL(":method")), LITERAL("POST"));
}

// Returns the name of the cluster that Envoy has chosen, by the last try; one without data if there is none.
static Text chosen_cluster(void* filter) {
  Text cluster = {NULL, 0};
  bool has_cluster = envoy_dynamic_module_callback_http_get_cluster_name(filter, &cluster);
  return has_cluster ? cluster : (Text){NULL, 0};
}

// Chooses the backend whose tokens are counted; none if they are not. The metadata of a route have
// `continuous` or `final` for each of its clusters.
static void choose_backend(void* filter, Accounting* accounting) {
  Text cluster = chosen_cluster(filter);
  if (!cluster.data) return;
  Text setting = route_setting(filter, cluster);
  if (!setting.data) return;
  accounting->continuous = text_is(setting, LITERAL("continuous"));
  accounting->backend = backend_of(cluster);
}

static void refuse_size(void* filter) {
  // For a path of OpenAI's API, the listener's mapper of local replies makes another body.
  envoy_dynamic_module_callback_http_send_response(filter, 413, NULL, 0, LITERAL("Payload Too Large"),
                                                   LITERAL("too_large"));
}

// Discards a part of a body that is too large. The reply follows the last part: a client that still sends
// when Envoy closes the connection gets a reset in place of the reply.
static int discard_part(void* filter, Request* request, bool is_last) {
  request->stage = DISCARDS;
  if (is_last || request->received_bytes / MOST_DISCARDED > request->configuration->most_bytes) {
    request->stage = IGNORES;
    refuse_size(filter);
  }
  return ENVOY_STOP_AND_DISCARD;
}

int envoy_dynamic_module_on_http_filter_request_headers(void* filter, void* own, bool is_last) {
  Request* request = own;
  if (request->configuration->routes_by_model) {
    if (models_answer(filter)) return ENVOY_STOP;
    if (is_last) return models_route(filter, (Text){NULL, 0}) ? ENVOY_STOP : ENVOY_CONTINUE;
  } else {
    if (is_last) return ENVOY_CONTINUE;
    // A request whose tokens are not counted is buffered too, as its size is limited, and is not read.
    if (is_generation(filter)) choose_backend(filter, &request->accounting);
  }
  // Envoy's limit for the buffer of a connection is smaller than a request may be.
  envoy_dynamic_module_callback_http_set_buffer_limit(filter, request->configuration->most_bytes);
  request->stage = READS_REQUEST;
  return ENVOY_STOP;  // the length in the headers may change
}

// Reads the whole request. `last` is where its last part is: ENVOY_RECEIVED_REQUEST, or, if trailers follow
// and Envoy has buffered the whole body, ENVOY_BUFFERED_REQUEST.
static int read_request(void* filter, Request* request, int last) {
  Buffer body = {NULL, 0, 0}, changed = {NULL, 0, 0};
  bool has_replied = false;
  bool is_split = last == ENVOY_RECEIVED_REQUEST &&
                  !envoy_dynamic_module_callback_http_received_buffered_request_body(filter);
  request->stage = IGNORES;  // unless the request's answer has to be read
  if (request->configuration->routes_by_model || request->accounting.backend) {
    if (is_split) append_body(filter, ENVOY_BUFFERED_REQUEST, &body);
    append_body(filter, last, &body);
  }
  if (request->configuration->routes_by_model) {
    has_replied = models_route(filter, buffer_text(&body));
  } else if (body.size) {
    account_request(&request->accounting, buffer_text(&body), &changed);
    // Not removed: without the header, a server may choose any coding (RFC 9110, 12.5.3).
    set_request_header(filter, LITERAL("accept-encoding"), LITERAL("identity"));
    request->stage = WAITS;
  }
  // Some engines read no body without a length.
  if (changed.size || (!has_replied && !request_header(filter, LITERAL("content-length")).data)) {
    Buffer length = {NULL, 0, 0};
    buffer_append_number(&length, changed.size ? changed.size : request->received_bytes);
    set_request_header(filter, LITERAL("content-length"), buffer_text(&length));
    buffer_free(&length);
  }
  if (changed.size) {
    if (is_split) replace_body(filter, ENVOY_BUFFERED_REQUEST, (Text){NULL, 0});
    replace_body(filter, last, buffer_text(&changed));
  }
  buffer_free(&changed);
  buffer_free(&body);
  return has_replied ? ENVOY_STOP : ENVOY_CONTINUE;
}

int envoy_dynamic_module_on_http_filter_request_body(void* filter, void* own, bool is_last) {
  Request* request = own;
  if (request->stage > DISCARDS) return ENVOY_CONTINUE;
  request->received_bytes += envoy_dynamic_module_callback_http_get_body_size(filter, ENVOY_RECEIVED_REQUEST);
  if (request->received_bytes > request->configuration->most_bytes)
    return discard_part(filter, request, is_last);
  return is_last ? read_request(filter, request, ENVOY_RECEIVED_REQUEST) : ENVOY_STOP;
}

int envoy_dynamic_module_on_http_filter_request_trailers(void* filter, void* own) {
  Request* request = own;
  if (request->stage == DISCARDS) {
    request->stage = IGNORES;
    refuse_size(filter);
    return ENVOY_STOP;
  }
  if (request->stage != READS_REQUEST) return ENVOY_CONTINUE;
  return read_request(filter, request, ENVOY_BUFFERED_REQUEST);
}

// ---------------------------------------------------------------- answers

// Returns whether the answer is compressed, or in another coding; then its bytes are not text.
static bool is_coded(void* filter) {
  Text coding = {NULL, 0};
  size_t codings = 0;
  bool has_coding = envoy_dynamic_module_callback_http_get_header(
      filter, ENVOY_RESPONSE_HEADERS, LITERAL("content-encoding"), &coding, 0, &codings);
  return has_coding && (codings > 1 || !text_is(coding, LITERAL("identity")));
}

// Moves the request to the backend of the last try: a retry may go to another arm.
static void follow(void* filter, Accounting* accounting) {
  Text cluster = chosen_cluster(filter);
  if (!cluster.data || text_is(cluster, backend_name(accounting->backend))) return;
  Backend* backend = backend_of(cluster);
  if (backend) account_move(accounting, backend);
}

int envoy_dynamic_module_on_http_filter_response_headers(void* filter, void* own, bool is_last) {
  Request* request = own;
  if (request->stage != WAITS) return ENVOY_CONTINUE;
  Accounting* accounting = &request->accounting;
  request->stage = IGNORES;
  follow(filter, accounting);
  if (is_last || !text_is(response_header(filter, LITERAL(":status")), LITERAL("200"))) return ENVOY_CONTINUE;
  if (is_coded(filter)) return ENVOY_CONTINUE;
  request->stage = READS_ANSWER;
  accounting->is_stream =
      text_contains(response_header(filter, LITERAL("content-type")), LITERAL("text/event-stream"));
  accounting->strips = accounting->strips && accounting->is_stream;
  if (accounting->strips)
    envoy_dynamic_module_callback_http_set_header(filter, ENVOY_RESPONSE_HEADERS, LITERAL("content-length"),
                                                  (Text){NULL, 0});
  return ENVOY_CONTINUE;
}

// Reads the end of an answer; what the client still gets is appended to `body`, a part of the answer
// (ENVOY_RECEIVED_RESPONSE or ENVOY_BUFFERED_RESPONSE).
static void end_of_answer(void* filter, Request* request, int body) {
  Buffer out = {NULL, 0, 0};
  request->stage = IGNORES;
  account_end(&request->accounting, &out);
  if (out.size) envoy_dynamic_module_callback_http_append_body(filter, body, buffer_text(&out));
  buffer_free(&out);
}

// Shortens a received part in one piece to its first `size` bytes. Envoy removes bytes from the front only,
// so the kept bytes move to the end of the piece.
static void shorten_part(void* filter, Text piece, size_t size) {
  size_t removed = piece.size - size;
  if (removed == 0) return;
  char* data = (char*)piece.data;
  memmove(data + removed, data, size);
  envoy_dynamic_module_callback_http_drain_body(filter, ENVOY_RECEIVED_RESPONSE, removed);
}

// Reads the received part of an answer, and replaces it by what the client gets of it.
static void read_part(void* filter, Request* request) {
  size_t number = envoy_dynamic_module_callback_http_get_body_chunks_size(filter, ENVOY_RECEIVED_RESPONSE);
  if (number == 0) return;
  Accounting* accounting = &request->accounting;
  Text few[FEW_CHUNKS];
  Text* chunks = number <= FEW_CHUNKS ? few : calloc(number, sizeof(Text));
  if (!chunks) abort();
  if (envoy_dynamic_module_callback_http_get_body_chunks(filter, ENVOY_RECEIVED_RESPONSE, chunks)) {
    // The client gets no more bytes of an event than the engine sends, so a part in one piece is rewritten in
    // Envoy's memory, which modules may change. A part that ends an event of earlier parts has no room for
    // their bytes, and is copied.
    bool is_in_place = number == 1 && accounting->rest.size == 0;
    Buffer out = {NULL, 0, 0};
    if (is_in_place) out = (Buffer){(char*)chunks[0].data, 0, chunks[0].size};
    for (size_t each = 0; each < number; each++) {
      if (chunks[each].size == 0) continue;
      if (accounting->is_stream) {
        account_events(accounting, chunks[each], &out);
      } else {
        account_answer(accounting, chunks[each]);
      }
    }
    if (is_in_place) {
      if (accounting->strips) shorten_part(filter, chunks[0], out.size);
    } else {
      if (accounting->strips) replace_body(filter, ENVOY_RECEIVED_RESPONSE, buffer_text(&out));
      buffer_free(&out);
    }
  }
  if (chunks != few) free(chunks);
}

int envoy_dynamic_module_on_http_filter_response_body(void* filter, void* own, bool is_last) {
  Request* request = own;
  if (request->stage != READS_ANSWER) return ENVOY_CONTINUE;
  read_part(filter, request);
  if (is_last) end_of_answer(filter, request, ENVOY_RECEIVED_RESPONSE);
  return ENVOY_CONTINUE;
}

int envoy_dynamic_module_on_http_filter_response_trailers(void* filter, void* own) {
  Request* request = own;
  if (request->stage == READS_ANSWER) end_of_answer(filter, request, ENVOY_BUFFERED_RESPONSE);
  return ENVOY_CONTINUE;
}

// ---------------------------------------------------------------- ends

// Returns whether a replica has got the request, by the address of the last try. A request that the activator
// forwards counts as one that it holds.
static bool is_at_replica(void* filter) {
  Text address = {NULL, 0};
  bool has_address = envoy_dynamic_module_callback_http_filter_get_attribute_string(
      filter, ENVOY_UPSTREAM_ADDRESS, &address);
  if (!has_address) return false;
  size_t folder = address.size;
  while (folder > 0 && address.data[folder - 1] != '/') folder--;
  return !text_ends_with(text_part(address, 0, folder), ACTIVATOR_FOLDER);
}

// ---------------------------------------------------------------- the module, its filters and their requests

const char* envoy_dynamic_module_on_program_init(void) { return ENVOY_ABI_VERSION; }

// `value` is the most bytes of a request, and further text behind a space (`token_filters.py`).
void* envoy_dynamic_module_on_http_filter_config_new(void* configuration, Text name, Text value) {
  (void)configuration;
  int64_t most_bytes = json_number(text_part(value, 0, text_find(value, 0, ' ')));
  if (most_bytes == NO_NUMBER) return NULL;
  Configuration* own = calloc(1, sizeof(Configuration));
  if (!own) return NULL;
  *own = (Configuration){text_is(name, LITERAL("slipway.models")), (size_t)most_bytes};
  if (table_open()) return own;
  free(own);
  return NULL;
}

void envoy_dynamic_module_on_http_filter_config_destroy(void* own_configuration) { free(own_configuration); }

void* envoy_dynamic_module_on_http_filter_new(void* own_configuration, void* filter) {
  (void)filter;
  Request* request = calloc(1, sizeof(Request));
  if (!request) return NULL;
  request->configuration = own_configuration;
  request->stage = IGNORES;
  return request;
}

void envoy_dynamic_module_on_http_filter_stream_complete(void* filter, void* own) {
  Request* request = own;
  if (!request->accounting.backend) return;  // no tokens are counted
  if (request->stage == WAITS && is_at_replica(filter)) {
    follow(filter, &request->accounting);
    account_abandoned(&request->accounting, false);
  } else if (request->stage == READS_ANSWER) {
    account_abandoned(&request->accounting, true);
  }
  account_close(&request->accounting);
  request->accounting.backend = NULL;
  request->stage = IGNORES;
}

void envoy_dynamic_module_on_http_filter_destroy(void* own) {
  Request* request = own;
  buffer_free(&request->accounting.rest);
  free(request);
}

void envoy_dynamic_module_on_http_filter_http_callout_done(void) {}
void envoy_dynamic_module_on_http_filter_http_stream_headers(void) {}
void envoy_dynamic_module_on_http_filter_http_stream_data(void) {}
void envoy_dynamic_module_on_http_filter_http_stream_trailers(void) {}
void envoy_dynamic_module_on_http_filter_http_stream_complete(void) {}
void envoy_dynamic_module_on_http_filter_http_stream_reset(void) {}
void envoy_dynamic_module_on_http_filter_scheduled(void) {}
void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(void) {}
void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(void) {}
