#include "json.h"

#define MAX_USAGE 2048  // bytes of a member `usage`
#define MAX_TRIES 3     // members named `usage` of one text that are read: each may cost MAX_USAGE bytes

// ---------------------------------------------------------------- requests

static Span* member_of(RequestMembers* members, Text name) {
  if (text_is(name, LITERAL("model"))) return &members->model;
  if (text_is(name, LITERAL("messages"))) return &members->messages;
  if (text_is(name, LITERAL("prompt"))) return &members->prompt;
  if (text_is(name, LITERAL("stream"))) return &members->stream;
  if (text_is(name, LITERAL("stream_options"))) return &members->stream_options;
  if (text_is(name, LITERAL("max_tokens"))) return &members->max_tokens;
  if (text_is(name, LITERAL("max_completion_tokens"))) return &members->max_completion_tokens;
  return NULL;
}

// Returns the position of the quote that ends the JSON string whose first quote is at `first`; the size of
// the text if there is none. A quote behind an odd number of backslashes is escaped.
static size_t end_of_string(Text text, size_t first) {
  size_t quote = first;
  while ((quote = text_find(text, quote + 1, '"')) < text.size) {
    size_t other = quote;
    while (text.data[other - 1] == '\\') other--;  // ends at the quote before, so that the time is linear
    if ((quote - other) % 2 == 0) return quote;
  }
  return text.size;
}

RequestMembers json_request(Text text) {
  const RequestMembers none = {0};
  RequestMembers members = {0};
  size_t at = after_spaces(text, 0);
  if (at == text.size || text.data[at] != '{') return none;
  size_t depth = 1;    // open braces and brackets; the members of the request's object are at 1
  Span name = {0, 0};  // of the member that is being read, without quotes
  size_t value = 0;    // the position behind its colon; 0 before the colon
  members.first = ++at;
  for (; at < text.size; at++) {
    char byte = text.data[at];
    if (byte == '"') {
      size_t quote = end_of_string(text, at);
      if (quote == text.size) return none;
      if (depth == 1 && !value) name = (Span){at + 1, quote};
      at = quote;
    } else if (byte == '{' || byte == '[') {
      depth++;
    } else if (byte == ':') {
      if (depth == 1) value = at + 1;
    } else if (byte == ',' || byte == '}' || byte == ']') {
      if (depth == 1 && name.end && value) {
        Span* member = member_of(&members, text_span(text, name));
        if (member) *member = (Span){value, at};
        name = (Span){0, 0};
        value = 0;
      }
      if (byte != ',' && --depth == 0) return members;
    }
  }
  return none;
}

int64_t json_number(Text text) {
  size_t at = 0;
  int64_t number = 0;
  while (at < text.size && is_digit(text.data[at])) {
    number = number * 10 + (text.data[at++] - '0');
    if (number > MAX_TOKENS) return NO_NUMBER;
  }
  if (at == 0) return NO_NUMBER;
  if (at < text.size && text.data[at] == '.') {
    at++;
    while (at < text.size && is_digit(text.data[at])) at++;
  }
  return at == text.size ? number : NO_NUMBER;
}

bool json_has_true(Text object, Text quoted) {
  for (size_t at = text_find(object, 0, '"'); at < object.size; at = text_find(object, at + 1, '"')) {
    if (!text_has_at(object, at, quoted)) continue;
    size_t colon = after_spaces(object, at + quoted.size);
    if (colon == object.size || object.data[colon] != ':') continue;
    if (text_has_at(object, after_spaces(object, colon + 1), LITERAL("true"))) return true;
  }
  return false;
}

// ---------------------------------------------------------------- events

// Returns whether the name of a member ends with the quote at `quote`.
static bool is_member(Text text, size_t quote, Text name) {
  // Most quotes have another byte before them than the last one of the name.
  if (quote < name.size + 1 || text.data[quote - 1] != name.data[name.size - 1]) return false;
  size_t first = quote - name.size - 1;
  if (text.data[first] != '"' || !text_has_at(text, first + 1, name)) return false;
  return first == 0 || text.data[first - 1] != '\\';
}

// Returns the position of the value behind the colon that follows; the size of the text without one.
static size_t value_after(Text text, size_t at) {
  at = after_spaces(text, at);
  return at < text.size && text.data[at] == ':' ? after_spaces(text, at + 1) : text.size;
}

// Returns the member `usage` whose name ends with the quote at `quote`; an empty one if its value is neither
// an object nor `null`, or if it has more than MAX_USAGE bytes.
static Usage usage_at(Text text, size_t quote) {
  const Usage none = {{0, 0}, {0, 0}};
  size_t name = quote - LITERAL("usage").size - 1;  // the first quote of the name
  text = text_part(text, 0, text.size - name > MAX_USAGE ? name + MAX_USAGE : text.size);
  size_t value = value_after(text, quote + 1);
  if (text_has_at(text, value, LITERAL("null"))) return (Usage){{name, value + 4}, {0, 0}};
  if (value == text.size || text.data[value] != '{') return none;
  size_t depth = 0;
  for (size_t at = value; at < text.size; at++) {
    if (text.data[at] == '"') at = end_of_string(text, at);
    if (at == text.size) break;
    if (text.data[at] == '{') depth++;
    if (text.data[at] == '}' && --depth == 0) return (Usage){{name, at + 1}, {value, at + 1}};
  }
  return none;
}

Usage json_usage(Text text) {
  size_t tries = 0;
  for (size_t quote = text.size; quote-- > 0 && tries < MAX_TRIES;) {
    if (text.data[quote] != '"' || !is_member(text, quote, LITERAL("usage"))) continue;
    tries++;
    Usage usage = usage_at(text, quote);
    if (usage.member.end) return usage;
  }
  return (Usage){{0, 0}, {0, 0}};
}

// Returns the position of the value of the first member of this name; the size of the text without one.
static size_t value_of(Text text, Text name) {
  for (size_t quote = text_find(text, 0, '"'); quote < text.size; quote = text_find(text, quote + 1, '"'))
    if (is_member(text, quote, name)) return value_after(text, quote + 1);
  return text.size;
}

// Returns the position of the value of a member of an object, and not of objects in it; the size of the text
// without one.
static size_t value_of_own(Text object, Text name) {
  size_t depth = 0;
  for (size_t at = 0; at < object.size; at++) {
    char byte = object.data[at];
    if (byte == '"') {
      size_t quote = end_of_string(object, at);
      bool is_name = depth == 1 && text_is(text_part(object, at + 1, quote), name);
      if (is_name) return value_after(object, quote + 1);
      at = quote;
    } else if (byte == '{' || byte == '[') {
      depth++;
    } else if (byte == '}' || byte == ']') {
      depth--;
    }
  }
  return object.size;
}

int64_t json_usage_number(Text usage, Text name) {
  size_t first = value_of_own(usage, name), end = first;
  while (end < usage.size && is_digit(usage.data[end])) end++;
  return json_number(text_part(usage, first, end));
}

// Returns whether a text has `[]`, with or without spaces between.
static bool has_empty_list(Text text) {
  for (size_t at = text_find(text, 0, '['); at < text.size; at = text_find(text, at + 1, '[')) {
    size_t end = after_spaces(text, at + 1);
    if (end < text.size && text.data[end] == ']') return true;
  }
  return false;
}

bool json_has_no_choices(Text event) {
  if (!has_empty_list(event)) return false;  // for most events, and sooner than by the names of members
  size_t value = value_of(event, LITERAL("choices"));
  if (value == event.size || event.data[value] != '[') return false;
  value = after_spaces(event, value + 1);
  return value < event.size && event.data[value] == ']';
}

// Returns whether the value of the member whose name ends with this quote is a string that is not empty.
static bool is_text(Text event, size_t quote) {
  size_t value = value_after(event, quote + 1);
  return event.size - value >= 2 && event.data[value] == '"' && event.data[value + 1] != '"';
}

static bool is_list_of_objects(Text event, size_t quote) {
  size_t value = value_after(event, quote + 1);
  if (value == event.size || event.data[value] != '[') return false;
  value = after_spaces(event, value + 1);
  return value < event.size && event.data[value] == '{';
}

// Returns whether the member whose name ends with this quote is an output. The byte before the quote excludes
// most names.
static bool is_output(Text event, size_t quote) {
  switch (quote ? event.data[quote - 1] : 0) {
    case 't':
      return (is_member(event, quote, LITERAL("content")) || is_member(event, quote, LITERAL("text")) ||
              is_member(event, quote, LITERAL("reasoning_content"))) &&
             is_text(event, quote);
    case 'g':
      return is_member(event, quote, LITERAL("reasoning")) && is_text(event, quote);
    case 's':
      if (is_member(event, quote, LITERAL("arguments"))) return is_text(event, quote);
      return is_member(event, quote, LITERAL("tool_calls")) && is_list_of_objects(event, quote);
    default:
      return false;
  }
}

bool json_has_output(Text event) {
  for (size_t quote = text_find(event, 0, '"'); quote < event.size; quote = text_find(event, quote + 1, '"'))
    if (is_output(event, quote)) return true;
  return false;
}

Span json_with_comma(Text text, Span member) {
  size_t before = member.first;
  while (before > 0 && is_space(text.data[before - 1])) before--;
  if (before > 0 && text.data[before - 1] == ',') return (Span){before - 1, member.end};
  size_t comma = after_spaces(text, member.end);
  if (comma < text.size && text.data[comma] == ',') member.end = after_spaces(text, comma + 1);
  return member;
}
