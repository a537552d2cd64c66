"""Names of metrics that one part of Slipway exports and another one reads, and of their pages' others."""

# Of a gateway, with the labels of a revision.
RECEIVED = "slipway_requests_received_total"
"""Gateways count each request when it arrives."""
ANSWERED = "slipway_requests_total"
IN_FLIGHT = "slipway_requests_in_flight"
DURATION = "slipway_request_duration_seconds"
PROMPT_TOKENS = "slipway_prompt_tokens_total"
GENERATED_TOKENS = "slipway_generated_tokens_total"
TOKENS_WAITING = "slipway_tokens_waiting"
QUEUE_REQUESTS = "slipway_token_queue_requests"
QUEUE_AGE = "slipway_token_queue_age_seconds"
FIRST_TOKEN = "slipway_time_to_first_token_seconds"
INTER_TOKEN = "slipway_inter_token_latency_seconds"

# Of a gateway.
READ_AT = "slipway_gateway_reading_timestamp_seconds"
STARTED_AT = "slipway_envoy_start_time_seconds"
GATEWAY = "slipway_gateway_info"

# Of an activator, the held requests with the labels of a revision.
HELD = "slipway_requests_held"
HELD_TOTAL = "slipway_requests_held_total"
HELD_SECONDS = "slipway_request_held_seconds"
ACTIVATOR = "slipway_activator_info"

# Of our runtime of language models.
PROMPT_TOKENS_WAITING = "slipway_prompt_tokens_waiting"
