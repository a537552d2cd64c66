// The filters of this module, and one request in each.

#ifndef SLIPWAY_FILTER_H
#define SLIPWAY_FILTER_H

#include "token_accounting.h"

#define METADATA LITERAL("slipway.tokens")  // of routes and of requests: the space of this module's values

// The configuration of one filter.
typedef struct {
  bool routes_by_model;  // otherwise it counts tokens
  size_t most_bytes;     // of a request's body; a larger request is refused
} Configuration;

typedef enum {
  READS_REQUEST,  // until the body has arrived as a whole
  DISCARDS,       // the rest of a body that is too large
  WAITS,          // for the headers of the answer
  READS_ANSWER,   // until the end of the answer
  IGNORES         // passes the request and its answer on unread
} Stage;

// One request in one filter.
typedef struct {
  const Configuration* configuration;
  Stage stage;
  size_t received_bytes;  // of the body
  Accounting accounting;
} Request;

// Returns a request header; a text without data if there is none.
Text request_header(void* filter, Text name);

void set_request_header(void* filter, Text name, Text value);

// Returns a string of the metadata that the request's route has in METADATA; one without data if there is
// none.
Text route_setting(void* filter, Text key);

// Returns the path without its query.
Text without_query(Text path);

// At the address of a namespace's models: replies to questions about them. Returns whether it has replied.
bool models_answer(void* filter);

// Routes a request to the service that its body names. Returns whether it has replied instead.
bool models_route(void* filter, Text body);

#endif
