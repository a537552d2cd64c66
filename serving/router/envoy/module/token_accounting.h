// Counts the tokens of a request to OpenAI's API, and those that wait, by backend.

#ifndef SLIPWAY_ACCOUNTING_H
#define SLIPWAY_ACCOUNTING_H

#include "backend.h"
#include "text.h"

// One request. What it has admitted waits until it is settled: see TokenCounter.
typedef struct {
  Backend* backend;   // NULL if no tokens are counted
  bool continuous;    // whether the engine can report the tokens in every event, not only at the end
  bool has_usage;     // whether the client asked for the numbers of tokens
  bool strips;        // whether numbers of tokens that the client did not ask for are removed from its answer
  bool is_streamed;   // whether the client asked for a stream
  bool is_stream;     // whether the answer is a stream of events
  bool knows_prompt;  // whether the engine reported the prompt's tokens
  size_t bytes;       // of the prompt
  int64_t begun;      // arrival, in microseconds since the machine's start
  int64_t last;       // the last token, in microseconds since the machine's start; 0 before the first one
  int64_t output;     // expected tokens of the answer
  int64_t generated;  // tokens of the answer so far
  int64_t uncounted;  // tokens in `generated` that are not in GENERATED_TOKENS yet
  int64_t settled;    // tokens in `output` that are settled
  // Admitted and not settled; all 0 after the first token of a stream.
  int64_t prompt_left;    // estimated tokens of the prompt
  int64_t requests_left;  // 1 or 0; 0 if the client asked for no stream: see REQUESTS_ADMITTED
  int64_t started_left;   // arrival, in tenths of a second since 2026-01-01; 0 as `requests_left`

  int64_t unreported_left;  // estimated tokens of a read prompt that is not reported: see PROMPT_UNREPORTED
  Buffer rest;              // the beginning of an event, or the end of an answer that is no stream
} Accounting;

// Admits a request. Appends to `changed` the body that the engine gets, if it is another one.
void account_request(Accounting* accounting, Text body, Buffer* changed);

// Moves a request without an answer yet to another backend.
void account_move(Accounting* accounting, Backend* backend);

// Counts a part of a streamed answer, which may begin and end within an event. Appends to `out` what the
// client gets, if `strips` is set.
void account_events(Accounting* accounting, Text part, Buffer* out);

// Keeps the end of an answer that is no stream.
void account_answer(Accounting* accounting, Text part);

// Counts the rest of an answer. Appends to `out` what the client still gets, if `strips` is set.
void account_end(Accounting* accounting, Buffer* out);

// Estimates the tokens of a request whose client asked for no stream, and whose answer has ended too early:
// those of the prompt, and those of the answer by the time and the pace of the backend's streams.
void account_abandoned(Accounting* accounting, bool has_begun);

// Settles what is left, at any end of the request, and frees memory.
void account_close(Accounting* accounting);

#endif
