// Texts that the module does not own, and buffers that it does.
//
// Positions in a text are numbers from 0 to its size, so that no pointer leaves the text.

#ifndef SLIPWAY_TEXT_H
#define SLIPWAY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Bytes without an end mark. Envoy's buffers have the same two members.
typedef struct {
  const char* data;  // may be null if `size` is 0
  size_t size;
} Text;

#define LITERAL(string) ((Text){(string), sizeof(string) - 1})

// A part of a text: from `first` up to `end`, which is 0 where there is no such part.
typedef struct {
  size_t first, end;
} Span;

// A text that the module owns; all zeros is an empty one.
typedef struct {
  char* data;
  size_t size, capacity;
} Buffer;

// Ends the process where there is no memory, as Envoy itself does.
void buffer_reserve(Buffer* buffer, size_t size);
void buffer_append(Buffer* buffer, Text text);
void buffer_append_number(Buffer* buffer, size_t number);
void buffer_free(Buffer* buffer);

static inline Text buffer_text(const Buffer* buffer) { return (Text){buffer->data, buffer->size}; }

// Returns the bytes from `first` up to `end`; both are cut to the text.
static inline Text text_part(Text text, size_t first, size_t end) {
  if (end > text.size) end = text.size;
  if (first >= end) return (Text){NULL, 0};
  return (Text){text.data + first, end - first};
}

static inline Text text_span(Text text, Span span) { return text_part(text, span.first, span.end); }

static inline bool text_is(Text text, Text other) {
  return text.size == other.size && (text.size == 0 || memcmp(text.data, other.data, text.size) == 0);
}

// Returns whether a part, which is not empty, is at a position.
static inline bool text_has_at(Text text, size_t at, Text part) {
  return at <= text.size && text.size - at >= part.size && memcmp(text.data + at, part.data, part.size) == 0;
}

static inline bool text_ends_with(Text text, Text end) {
  return text.size >= end.size && text_has_at(text, text.size - end.size, end);
}

// Returns the position of a byte from `at` on, or the size of the text.
static inline size_t text_find(Text text, size_t at, char byte) {
  if (at >= text.size) return text.size;
  const char* found = memchr(text.data + at, byte, text.size - at);
  return found ? (size_t)(found - text.data) : text.size;
}

static inline bool text_contains(Text text, Text part) {
  for (size_t at = text_find(text, 0, part.data[0]); at < text.size;
       at = text_find(text, at + 1, part.data[0]))
    if (text_has_at(text, at, part)) return true;
  return false;
}

static inline bool is_space(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

static inline bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

static inline size_t after_spaces(Text text, size_t at) {
  while (at < text.size && is_space(text.data[at])) at++;
  return at;
}

static inline Text text_trimmed(Text text) {
  size_t first = after_spaces(text, 0), end = text.size;
  while (end > first && is_space(text.data[end - 1])) end--;
  return text_part(text, first, end);
}

#endif
