// What Envoy calls at the end of each request: an access logger that counts the answer.

#include "answers.h"
#include "envoy_abi.h"
#include "table.h"

// The two configurations of loggers, which are compared by address: GRPC also reads the status of gRPC.
static char ANY[1], GRPC[1];

// By the number of a gRPC status, 0 to 16: the class of the HTTP status for the same error, as a digit.
static const char CLASS_OF_GRPC[] = "24545444444445554";

// Returns a status of HTTP that has the class of the answer's `grpc-status`; 200 without a `grpc-status`. The
// status of gRPC is needed, as in HTTP every answer of gRPC has 200.
static uint32_t grpc_status(void* logger) {
  const Text name = LITERAL("grpc-status");
  Text text = {NULL, 0};
  uint32_t status = 0;
  if (!envoy_dynamic_module_callback_access_logger_get_header_value(logger, ENVOY_RESPONSE_TRAILERS, name,
                                                                    &text, 0, NULL) &&
      !envoy_dynamic_module_callback_access_logger_get_header_value(logger, ENVOY_RESPONSE_HEADERS, name,
                                                                    &text, 0, NULL))
    return 200;
  for (size_t at = 0; at < text.size && at < 3 && is_digit(text.data[at]); at++)
    status = status * 10 + (uint32_t)(text.data[at] - '0');
  return status < sizeof(CLASS_OF_GRPC) - 1 ? (uint32_t)(CLASS_OF_GRPC[status] - '0') * 100 : 500;
}

void* envoy_dynamic_module_on_access_logger_config_new(void* configuration, Text name, Text value) {
  (void)configuration;
  (void)value;
  if (!table_open()) return NULL;
  return text_is(name, LITERAL("slipway.answers.grpc")) ? GRPC : ANY;
}

void envoy_dynamic_module_on_access_logger_config_destroy(void* own_configuration) {
  (void)own_configuration;
}

void* envoy_dynamic_module_on_access_logger_new(void* own_configuration, void* logger) {
  (void)logger;
  return own_configuration;
}

void envoy_dynamic_module_on_access_logger_log(void* logger, void* own, int event) {
  (void)event;
  Text cluster = {NULL, 0};
  if (!envoy_dynamic_module_callback_access_logger_get_upstream_cluster(logger, &cluster)) return;
  uint32_t status = envoy_dynamic_module_callback_access_logger_get_response_code(logger);
  if (status == 200 && own == GRPC) status = grpc_status(logger);
  EnvoyTimes times;
  memset(&times, 0xff, sizeof(times));  // -1: unknown
  envoy_dynamic_module_callback_access_logger_get_timing_info_v2(logger, &times);
  int64_t duration = -1;  // of an answer that no replica gave
  if (times.answer_received >= 0) {
    duration = times.answer_received - times.request_received;
    duration = duration > 0 ? duration / 1000 : 0;  // the answer may end before the request
  }
  answers_count(cluster, status, duration);
}

void envoy_dynamic_module_on_access_logger_destroy(void* own) { (void)own; }
