// The address of a namespace's models: routes a request by the model that its body names.
//
// The metadata of its route are `base`, the path of the namespace with slashes around it; `list`, the
// document with all models; and `model:NAME` for each, its document.

#include "envoy_abi.h"
#include "filter.h"
#include "json.h"

#define MAX_NAME 253   // bytes of the name of a model
#define SHOWN_NAME 80  // bytes of an unknown name in the reply

// Replies with a document. The metadata select the rule of Envoy's local replies that leaves the document as
// it is (`token_filters.local_replies`).
static void respond(void* filter, uint32_t status, Text document) {
  EnvoyHeader type = {LITERAL("content-type"), LITERAL("application/json")};
  envoy_dynamic_module_callback_http_set_dynamic_metadata_string(filter, METADATA, LITERAL("reply"),
                                                                 LITERAL("json"));
  envoy_dynamic_module_callback_http_send_response(filter, status, &type, 1, document,
                                                   LITERAL("slipway_models"));
}

static void respond_no_model(void* filter, Text name) {
  Buffer document = {NULL, 0, 0};
  char shown[SHOWN_NAME];
  size_t size = name.size < SHOWN_NAME ? name.size : SHOWN_NAME;
  for (size_t at = 0; at < size; at++) {
    char byte = name.data[at], lower = (char)(byte | 32);
    bool is_plain =
        (lower >= 'a' && lower <= 'z') || is_digit(byte) || byte == '.' || byte == '-' || byte == '_';
    shown[at] = is_plain ? byte : '?';
  }
  buffer_append(&document, LITERAL("{\"error\":{\"message\":\"the model `"));
  buffer_append(&document, (Text){shown, size});
  buffer_append(&document,
                LITERAL("` does not exist\",\"type\":\"invalid_request_error\",\"param\":\"model\","));
  buffer_append(&document, LITERAL("\"code\":\"model_not_found\"}}"));
  respond(filter, 404, buffer_text(&document));
  buffer_free(&document);
}

// Returns the document of a model; a text without data if there is none of this name.
static Text document_of(void* filter, Text name) {
  static const char PREFIX[] = {'m', 'o', 'd', 'e', 'l', ':'};
  char key[sizeof(PREFIX) + MAX_NAME];
  if (name.size == 0 || name.size > MAX_NAME) return (Text){NULL, 0};
  memcpy(key, PREFIX, sizeof(PREFIX));
  memcpy(key + sizeof(PREFIX), name.data, name.size);
  return route_setting(filter, (Text){key, sizeof(PREFIX) + name.size});
}

// Returns the path behind `/NAMESPACE/openai`, which begins with `/v1/`; an empty text without it.
static Text path_of_api(void* filter) {
  Text path = without_query(request_header(filter, LITERAL(":path")));
  size_t at = text_find(path, text_find(path, 1, '/') + 1, '/');
  return text_has_at(path, at, LITERAL("/v1/")) ? text_part(path, at, path.size) : (Text){NULL, 0};
}

bool models_answer(void* filter) {
  static const Text MODELS = {"/v1/models", 10};
  Text path = path_of_api(filter);
  if (!text_is(request_header(filter, LITERAL(":method")), LITERAL("GET"))) return false;
  if (text_is(path, MODELS)) {
    respond(filter, 200, route_setting(filter, LITERAL("list")));
    return true;
  }
  Text name = text_part(path, MODELS.size + 1, path.size);
  if (!text_has_at(path, 0, MODELS) || path.data[MODELS.size] != '/' || name.size == 0) return false;
  Text document = document_of(filter, name);
  if (document.data) {
    respond(filter, 200, document);
  } else {
    respond_no_model(filter, name);
  }
  return true;
}

bool models_route(void* filter, Text body) {
  Text name = text_trimmed(text_span(body, json_request(body).model));
  if (name.size < 2 || name.data[0] != '"' || name.data[name.size - 1] != '"') {
    respond(filter, 400,
            LITERAL("{\"error\":{\"message\":\"the body must be a JSON object with a `model`\",\"type\":"
                    "\"invalid_request_error\",\"param\":\"model\",\"code\":null}}"));
    return true;
  }
  name = text_part(name, 1, name.size - 1);
  if (!document_of(filter, name).data) {
    respond_no_model(filter, name);
    return true;
  }
  Text whole = request_header(filter, LITERAL(":path"));
  Buffer path = {NULL, 0, 0};
  buffer_append(&path, route_setting(filter, LITERAL("base")));
  buffer_append(&path, name);
  buffer_append(&path, path_of_api(filter));
  buffer_append(&path, text_part(whole, text_find(whole, 0, '?'), whole.size));
  set_request_header(filter, LITERAL(":path"), buffer_text(&path));
  buffer_free(&path);
  envoy_dynamic_module_callback_http_clear_route_cache(filter);
  return false;
}
