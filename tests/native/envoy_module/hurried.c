// Threads that admit requests and end them as fast as they can, until the input ends: a reading of the counts
// falls between two updates of one request.

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "token_accounting.h"

#define THREADS 2
// Streams alone are in the queue, and the module changes no stream that asks for `usage`.
#define REQUEST \
  "{\"prompt\":\"a\",\"max_tokens\":1,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"

static bool ends;

static void* hurry(void* unused) {
  while (!__atomic_load_n(&ends, __ATOMIC_RELAXED)) {
    Accounting accounting;
    Buffer changed = {NULL, 0, 0}, out = {NULL, 0, 0};
    memset(&accounting, 0, sizeof(accounting));
    accounting.backend = backend_of(LITERAL("default/chat-a/8080"));
    account_request(&accounting, LITERAL(REQUEST), &changed);
    account_events(&accounting, LITERAL("data: {\"text\":\"b\"}\n\n"), &out);
    account_close(&accounting);
  }
  return unused;
}

int main(void) {
  pthread_t threads[THREADS];
  if (!table_open() || !backend_of(LITERAL("default/chat-a/8080"))) return 1;
  for (size_t each = 0; each < THREADS; each++)
    if (pthread_create(&threads[each], NULL, hurry, NULL)) return 1;
  puts("started");
  fflush(stdout);
  while (getchar() != EOF) continue;
  __atomic_store_n(&ends, true, __ATOMIC_RELAXED);
  for (size_t each = 0; each < THREADS; each++) pthread_join(threads[each], NULL);
  return 0;
}
