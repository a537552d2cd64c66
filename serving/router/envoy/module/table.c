#define _GNU_SOURCE  // memfd_create
#include "table.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_ROWS (1u << 20)  // clusters in the life of one Envoy; memory is used by those that exist

// The beginning of the memory; the rows follow.
typedef struct {
  uint64_t row_size, rows;
  uint64_t unused[6];
} Header;

_Static_assert(sizeof(Row) == 704 && sizeof(Header) == 64, "a row has whole lines of the cache");

static Header* header;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // for new rows

static Row* row_at(uint64_t index) { return (Row*)(header + 1) + index; }

static void open_memory(void) {
  size_t size = sizeof(Header) + (size_t)MAX_ROWS * sizeof(Row);
  // Anonymous memory, as a file on a full disk would end Envoy at its first write. The gateway finds the
  // descriptor by its name.
  int descriptor = memfd_create("slipway-counts", MFD_CLOEXEC);
  if (descriptor < 0) return;
  void* memory = MAP_FAILED;
  if (ftruncate(descriptor, (off_t)size) == 0)
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    close(descriptor);
    return;
  }
  header = memory;
  header->row_size = sizeof(Row);
}

bool table_open(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_memory);
  return header != NULL;
}

static bool has_name(const Row* row, Text name) {
  return row->name_size == name.size && memcmp(row->name, name.data, name.size) == 0;
}

// Returns the row of a cluster among all threads' rows, a new one if there is none; NULL if there is no room.
static Row* shared_row(Text name) {
  pthread_mutex_lock(&lock);
  uint64_t rows = header->rows;
  Row* row = NULL;
  for (uint64_t index = 0; index < rows && !row; index++)
    if (has_name(row_at(index), name)) row = row_at(index);
  if (!row && rows < MAX_ROWS) {
    row = row_at(rows);
    row->name_size = name.size;
    memcpy(row->name, name.data, name.size);
    __atomic_store_n(&header->rows, rows + 1, __ATOMIC_RELEASE);  // a reader sees whole names
  }
  pthread_mutex_unlock(&lock);
  return row;
}

// FNV-1a, over words of eight bytes and then over the last bytes. A multiplication carries upwards only, so
// the shifts mix the upper half into the lower one, which decides the place in the hash table.
static uint64_t hash_of(Text name) {
  uint64_t hash = 14695981039346656037u;
  size_t at = 0;
  for (uint64_t word; at + sizeof(word) <= name.size; at += sizeof(word)) {
    memcpy(&word, name.data + at, sizeof(word));
    hash = (hash ^ word) * 1099511628211u;
    hash ^= hash >> 32;
  }
  for (; at < name.size; at++) hash = (hash ^ (unsigned char)name.data[at]) * 1099511628211u;
  return hash ^ hash >> 32;
}

// The rows that a thread has used: a hash table with linear probing, at most half full.
typedef struct {
  Row** places;
  size_t size, used;
} Rows;

static Row** place_of(const Rows* rows, Text name) {
  size_t at = hash_of(name) & (rows->size - 1);
  while (rows->places[at] && !has_name(rows->places[at], name)) at = (at + 1) & (rows->size - 1);
  return &rows->places[at];
}

static void grow(Rows* rows) {
  Rows larger = {NULL, rows->size ? rows->size * 2 : 64, rows->used};
  larger.places = calloc(larger.size, sizeof(Row*));
  if (!larger.places) abort();
  for (size_t at = 0; at < rows->size; at++) {
    Row* row = rows->places[at];
    if (row) *place_of(&larger, (Text){row->name, row->name_size}) = row;
  }
  free(rows->places);
  *rows = larger;
}

Row* table_row(Text cluster) {
  static _Thread_local Rows rows;
  if (cluster.size == 0 || cluster.size > MAX_CLUSTER) return NULL;
  if (rows.used * 2 >= rows.size) grow(&rows);
  Row** place = place_of(&rows, cluster);
  if (*place) return *place;
  *place = shared_row(cluster);
  if (*place) rows.used++;
  return *place;
}
