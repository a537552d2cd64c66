// Reads what accounting needs of JSON texts, in time that is linear in their size.
//
// The bodies of requests are read as JSON. Events of a stream are searched for the quoted names of members:
// inside a JSON string the quotes of such a name are escaped, so it is not taken for a member.

#ifndef SLIPWAY_JSON_H
#define SLIPWAY_JSON_H

#include "text.h"

#define MAX_TOKENS 1000000000  // of one request; a higher number is an error
#define NO_NUMBER (-1)

// The members of a request's object that matter; each is the value with the spaces around it.
typedef struct {
  size_t first;  // the position behind the object's brace; 0 if the text is no object
  Span model, messages, prompt, stream, stream_options, max_tokens, max_completion_tokens;
} RequestMembers;

// Returns the members of a request's body; all zeros if it is no whole object. Of members with the same name
// the last counts.
RequestMembers json_request(Text text);

// Returns the whole part of a number, or NO_NUMBER if the text is none, or one above MAX_TOKENS.
int64_t json_number(Text text);

// Returns whether an object has a member of this name that is true. `quoted` is the name in quotes.
bool json_has_true(Text object, Text quoted);

// The member `usage` of an event or answer.
typedef struct {
  Span member;  // name and value; `end` is 0 without the member
  Span object;  // the value; `end` is 0 if it is `null`
} Usage;

// Returns the last member `usage` of a JSON text.
Usage json_usage(Text text);

// Returns the number of tokens in a member of a `usage` object, or NO_NUMBER.
int64_t json_usage_number(Text usage, Text name);

// Returns whether the event's `choices` are an empty list.
bool json_has_no_choices(Text event);

// Returns whether an event has text, reasoning or a call of a tool from the model.
bool json_has_output(Text event);

// Returns the span of a member and of the comma that has to be removed together with the member.
Span json_with_comma(Text text, Span member);

#endif
