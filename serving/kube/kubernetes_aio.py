"""The parts of `kubernetes.aio` that are used here, without the synchronous client.

Importing a submodule runs the `__init__` of its packages first. Those of `kubernetes` import the synchronous
client, requests, urllib3 and more: a third of the CPU time of `slipway get`, and 9 MB in every process that
talks to the API. So these packages are registered without running their `__init__` while the parts are
imported.
"""

import importlib.util
import sys

_registered = [name for name in ("kubernetes", "kubernetes.aio") if name not in sys.modules]
for _name in _registered:
    _spec = importlib.util.find_spec(_name)
    assert _spec is not None
    sys.modules[_name] = importlib.util.module_from_spec(_spec)

from kubernetes.aio import config  # noqa: E402 after the packages are registered
from kubernetes.aio.client.configuration import Configuration  # noqa: E402
from kubernetes.aio.client.rest import RESTClientObject  # noqa: E402
from kubernetes.aio.config.kube_config import KubeConfigMerger  # noqa: E402

for _name in _registered:  # `import kubernetes` elsewhere is an ordinary import
    del sys.modules[_name]

__all__ = ["Configuration", "KubeConfigMerger", "RESTClientObject", "config"]
