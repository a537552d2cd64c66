#include "text.h"

#include <stdlib.h>

void buffer_reserve(Buffer* buffer, size_t size) {
  if (size <= buffer->capacity) return;
  size_t capacity = buffer->capacity < 256 ? 256 : buffer->capacity;
  while (capacity < size) {
    if (capacity > SIZE_MAX / 2) abort();
    capacity *= 2;
  }
  char* data = realloc(buffer->data, capacity);
  if (!data) abort();
  buffer->data = data;
  buffer->capacity = capacity;
}

void buffer_append(Buffer* buffer, Text text) {
  if (text.size == 0) return;
  if (text.size > SIZE_MAX - buffer->size) abort();
  buffer_reserve(buffer, buffer->size + text.size);
  // Not memcpy: the filter rewrites events within Envoy's memory, where text and buffer may overlap.
  memmove(buffer->data + buffer->size, text.data, text.size);
  buffer->size += text.size;
}

void buffer_append_number(Buffer* buffer, size_t number) {
  char digits[24];  // at least the 20 digits of SIZE_MAX
  size_t first = sizeof(digits);
  do {
    digits[--first] = (char)('0' + number % 10);
    number /= 10;
  } while (number);
  buffer_append(buffer, (Text){digits + first, sizeof(digits) - first});
}

void buffer_free(Buffer* buffer) {
  free(buffer->data);
  *buffer = (Buffer){NULL, 0, 0};
}
