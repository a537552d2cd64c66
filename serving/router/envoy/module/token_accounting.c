#include "token_accounting.h"

#include <time.h>

#include "json.h"

#define EPOCH 1767225600  // 2026-01-01 in Unix seconds, so that sums of start times stay small
#define STEP 8            // generated tokens between two updates of the counters, which threads share
#define MAX_EVENT 65536   // bytes; a longer event passes unread

static int64_t microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t tenths_since_epoch(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  int64_t tenths = ((int64_t)now.tv_sec - EPOCH) * 10 + now.tv_nsec / 100000000;
  return tenths > 0 ? tenths : 0;
}

// Returns a number of tokens, rounded up.
static int64_t tokens(double number) {
  if (!(number < MAX_TOKENS)) return MAX_TOKENS;
  int64_t whole = (int64_t)number;
  return (double)whole < number ? whole + 1 : whole;
}

// ---------------------------------------------------------------- requests

// Writes a request that asks the engine for the numbers of tokens.
static void ask_for_usage(const Accounting* accounting, Text body, const RequestMembers* members,
                          Buffer* changed) {
  Span options = members->stream_options;
  bool is_new = !options.end;
  if (is_new) options = (Span){members->first, members->first};
  buffer_reserve(changed, body.size + 128);
  buffer_append(changed, text_part(body, 0, options.first));
  if (is_new) buffer_append(changed, LITERAL("\"stream_options\":"));
  buffer_append(changed, LITERAL("{\"include_usage\":true"));
  if (accounting->continuous) buffer_append(changed, LITERAL(",\"continuous_usage_stats\":true"));
  buffer_append(changed, LITERAL("}"));
  if (is_new) buffer_append(changed, LITERAL(","));
  buffer_append(changed, text_part(body, options.end, body.size));
}

static void admit(const Accounting* accounting) {
  const Backend* backend = accounting->backend;
  count(backend, PROMPT_ADMITTED, accounting->prompt_left);
  count(backend, OUTPUT_ADMITTED, accounting->output);
  count(backend, STARTED_ADMITTED, accounting->started_left);  // before the request: see TokenCounter
  count(backend, REQUESTS_ADMITTED, accounting->requests_left);
}

static void settle_prompt(const Accounting* accounting) {
  const Backend* backend = accounting->backend;
  count(backend, PROMPT_SETTLED, accounting->prompt_left);
  count(backend, REQUESTS_SETTLED, accounting->requests_left);
  count(backend, STARTED_SETTLED, accounting->started_left);
}

void account_request(Accounting* accounting, Text body, Buffer* changed) {
  const Backend* backend = accounting->backend;
  RequestMembers members = json_request(body);
  Span prompt = members.messages.end ? members.messages : members.prompt;
  Span limit = members.max_completion_tokens.end ? members.max_completion_tokens : members.max_tokens;
  Text options = text_span(body, members.stream_options);
  bool has_each = json_has_true(options, LITERAL("\"continuous_usage_stats\""));
  accounting->is_streamed = text_is(text_trimmed(text_span(body, members.stream)), LITERAL("true"));
  accounting->has_usage = json_has_true(options, LITERAL("\"include_usage\""));
  accounting->strips =
      accounting->is_streamed && !(accounting->has_usage && (has_each || !accounting->continuous));
  if (accounting->strips) ask_for_usage(accounting, body, &members, changed);
  accounting->bytes = prompt.end ? prompt.end - prompt.first : body.size;
  int64_t most = json_number(text_trimmed(text_span(body, limit)));
  int64_t expected = tokens(backend->output_tokens.value);
  accounting->begun = microseconds();
  accounting->output = most != NO_NUMBER && most < expected ? most : expected;
  accounting->prompt_left = tokens((double)accounting->bytes / backend->bytes_per_token.value);
  if (accounting->is_streamed) {
    accounting->requests_left = 1;
    accounting->started_left = tenths_since_epoch();
  }
  admit(accounting);
}

void account_move(Accounting* accounting, Backend* backend) {
  if (accounting->backend == backend) return;
  settle_prompt(accounting);
  count(accounting->backend, OUTPUT_SETTLED, accounting->output);
  accounting->backend = backend;
  admit(accounting);
}

// ---------------------------------------------------------------- answers

// Counts the prompt's tokens, as the engine reported them, and learns how many bytes a token has.
static void read_prompt(Accounting* accounting, int64_t number) {
  if (number == NO_NUMBER) return;
  accounting->knows_prompt = true;
  accounting->unreported_left = 0;
  count(accounting->backend, PROMPT_TOKENS, number);
  if (number > 0 && accounting->bytes > 0)
    mean_learn(&accounting->backend->bytes_per_token, (double)accounting->bytes / (double)number);
}

// Observes the latencies of `number` new tokens, and settles what waits for the first one. A stream that the
// client did not ask for has no latencies, as it was not in the queue: so no more first tokens are counted
// than requests.
static void progress(Accounting* accounting, int64_t number) {
  Backend* backend = accounting->backend;
  int64_t now = microseconds();
  if (accounting->last) {
    int64_t each = (now - accounting->last) / number;
    if (accounting->is_streamed) observe(&backend->row->inter_token, each, number < STEP ? number : STEP);
  } else {
    if (accounting->is_streamed) observe(&backend->row->first_token, now - accounting->begun, 1);
    settle_prompt(accounting);
    accounting->unreported_left = accounting->knows_prompt ? 0 : accounting->prompt_left;
    accounting->prompt_left = accounting->requests_left = accounting->started_left = 0;
  }
  accounting->last = now;
}

// Counts the generated tokens, if there are `least` new ones or no more are expected.
static void settle(Accounting* accounting, int64_t least) {
  Backend* backend = accounting->backend;
  // An answer may have more tokens than expected, but settles no more than it has admitted.
  bool is_all = accounting->generated >= accounting->output;
  int64_t settled = is_all ? accounting->output : accounting->generated;
  int64_t more = settled - accounting->settled;
  if (accounting->uncounted >= least || (accounting->uncounted && more > 0 && is_all)) {
    count_generated(backend, accounting->uncounted);
    accounting->uncounted = 0;
  }
  if (more >= least || (more > 0 && is_all)) {
    count(backend, OUTPUT_SETTLED, more);
    accounting->settled = settled;
  }
}

// Counts an event, and appends what the client gets of it.
static void take(Accounting* accounting, Text event, Buffer* out) {
  Usage usage = json_usage(event);
  Text numbers = text_span(event, usage.object);
  int64_t total = json_usage_number(numbers, LITERAL("completion_tokens"));
  // An event without numbers counts as one token if it has output.
  int64_t number = total == NO_NUMBER ? json_has_output(event) : total - accounting->generated;
  if (number > 0) progress(accounting, number);
  accounting->generated += number;
  accounting->uncounted += number;
  if (usage.object.end && !accounting->knows_prompt)
    read_prompt(accounting, json_usage_number(numbers, LITERAL("prompt_tokens")));
  if (!accounting->strips) return;
  if (!usage.member.end) {
    buffer_append(out, event);
  } else if (usage.object.end && json_has_no_choices(event)) {
    if (accounting->has_usage) buffer_append(out, event);  // the last event, which has the numbers alone
  } else {
    Span removed = json_with_comma(event, usage.member);
    buffer_append(out, text_part(event, 0, removed.first));
    buffer_append(out, text_part(event, removed.end, event.size));
  }
}

// Returns the position behind the empty line that ends an event, or 0; lines end with LF, or also with CRLF.
static size_t end_of_event(Text text, size_t at) {
  for (at = text_find(text, at, '\n'); at < text.size; at = text_find(text, at + 1, '\n')) {
    if (text_has_at(text, at + 1, LITERAL("\n"))) return at + 2;
    if (text_has_at(text, at + 1, LITERAL("\r\n"))) return at + 3;
  }
  return 0;
}

void account_events(Accounting* accounting, Text part, Buffer* out) {
  Buffer* rest = &accounting->rest;
  Text text = part;
  size_t at = 0, search = 0;
  bool has_rest = rest->size > 0;
  if (has_rest) {
    search = rest->size > 2 ? rest->size - 2 : 0;  // it may end within the LF CR LF of its event
    buffer_append(rest, part);
    text = buffer_text(rest);
  }
  for (size_t end; (end = end_of_event(text, search)); at = search = end)  // `at` begins the next event
    take(accounting, text_part(text, at, end), out);
  Text left = text_part(text, at, text.size);
  if (left.size > MAX_EVENT) {
    if (accounting->strips) buffer_append(out, left);
    left.size = 0;
  }
  if (left.size == 0) {
    buffer_free(rest);
  } else if (has_rest) {
    memmove(rest->data, left.data, left.size);
    rest->size = left.size;
  } else {
    buffer_append(rest, left);
  }
  settle(accounting, STEP);
}

void account_answer(Accounting* accounting, Text part) {
  Buffer* rest = &accounting->rest;
  if (part.size > MAX_EVENT) part = text_part(part, part.size - MAX_EVENT, part.size);
  if (rest->size + part.size > MAX_EVENT) {
    size_t dropped = rest->size + part.size - MAX_EVENT;
    memmove(rest->data, rest->data + dropped, rest->size - dropped);
    rest->size -= dropped;
  }
  buffer_append(rest, part);
}

void account_end(Accounting* accounting, Buffer* out) {
  Mean* mean = &accounting->backend->output_tokens;
  if (accounting->is_stream) {
    // Many clients read a stream by lines, and need no empty line behind the last one.
    if (accounting->rest.size) take(accounting, buffer_text(&accounting->rest), out);
    settle(accounting, 1);
    if (accounting->generated > 0) mean_learn(mean, (double)accounting->generated);
    return;
  }
  Text answer = buffer_text(&accounting->rest);
  Text usage = text_span(answer, json_usage(answer).object);
  if (!usage.size) return;
  int64_t generated = json_usage_number(usage, LITERAL("completion_tokens"));
  read_prompt(accounting, json_usage_number(usage, LITERAL("prompt_tokens")));
  if (generated == NO_NUMBER) return;
  count_generated(accounting->backend, generated);
  mean_learn(mean, (double)generated);
}

// Returns the tokens that an engine has probably generated for an answer that has not begun; NO_NUMBER if it
// has probably not read the prompt yet.
static int64_t unseen_output(const Accounting* accounting) {
  const Row* row = accounting->backend->row;
  double after_first = (double)(microseconds() - accounting->begun) - mean_latency(&row->first_token);
  double each = mean_latency(&row->inter_token);
  if (after_first < 0) return NO_NUMBER;
  if (each == 0) return 0;  // no stream has shown the pace
  int64_t generated = tokens(after_first / each);
  return generated < accounting->output ? generated : accounting->output;
}

void account_abandoned(Accounting* accounting, bool has_begun) {
  if (accounting->is_streamed || accounting->is_stream) return;
  // An engine sends an answer as a whole: one that has begun is generated.
  int64_t generated = has_begun ? accounting->output : unseen_output(accounting);
  if (generated == NO_NUMBER) return;
  accounting->unreported_left = accounting->prompt_left;
  count_generated(accounting->backend, generated);
}

void account_close(Accounting* accounting) {
  Backend* backend = accounting->backend;
  if (accounting->uncounted) count_generated(backend, accounting->uncounted);
  settle_prompt(accounting);
  count(backend, OUTPUT_SETTLED, accounting->output - accounting->settled);
  count(backend, PROMPT_UNREPORTED, accounting->unreported_left);
  buffer_free(&accounting->rest);
}
