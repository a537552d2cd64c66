"""OpenAI's API: its requests, its answers and its paths."""
