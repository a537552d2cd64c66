"""The mark of tests that need Envoy's module of token accounting."""

import pytest

from serving.router.envoy import token_module

needs_token_module = pytest.mark.skipif(
    token_module.library() is None,
    reason="Envoy's module of token accounting is not built: install gcc and libc6-dev, and run `make venv` again",
)
