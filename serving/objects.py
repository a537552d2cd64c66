"""The objects of the Kubernetes API as this code has them: decoded JSON, with `apiVersion`, `kind` and
`metadata`.
"""

from typing import Any

Object = dict[str, Any]
"""An object, or the part of one that its user reads. Objects of a cache are shared: who changes one copies
it.
"""
