// Counts the tokens of a request to OpenAI's API, and those that wait, by backend.

#ifndef SLIPWAY_ACCOUNTING_H
#define SLIPWAY_ACCOUNTING_H

#include "backend.h"
#include "text.h"

typedef struct {
  Backend* backend;   // NULL if no tokens are counted
  bool continuous;    // whether the engine can report the tokens in every part
  bool has_usage;     // whether the client asked for the numbers of tokens
  bool strips;        // whether the client's answer lacks what it did not ask for
  bool is_stream;     // whether the answer is a stream of events
  bool knows_prompt;  // whether the engine reported the prompt's tokens
  size_t bytes;       // of the prompt
  int64_t begun,
      last;        // microseconds since the machine's start; `last` is of the last token, 0 before the first
  int64_t output;  // expected tokens
  int64_t generated;  // tokens
  int64_t uncounted;  // of `generated`: those that no counter has yet
  int64_t settled;    // of `output`
  int64_t prompt_left, requests_left, started_left, unread_left;  // admitted and not settled
  Buffer rest;  // the beginning of an event, or the end of an answer that is no stream
} Accounting;

// Admits a request. Appends to `changed` the body that the engine gets, if it is another one.
void account_request(Accounting* accounting, Text body, Buffer* changed);

// Moves a request without an answer yet to another backend.
void account_move(Accounting* accounting, Backend* backend);

// Counts a part of a streamed answer. Appends to `out` what the client gets, if `strips` is set.
void account_events(Accounting* accounting, Text part, Buffer* out);

// Keeps the end of an answer that is no stream.
void account_answer(Accounting* accounting, Text part);

// Counts what the end of the answer tells. Appends to `out` what the client still gets, if `strips` is set.
void account_end(Accounting* accounting, Buffer* out);

// Settles what is left, at any end of the request, and frees memory.
void account_close(Accounting* accounting);

#endif
