"""The parts of `kubernetes.aio` that are used here, without the synchronous client and the generated one.

Importing a submodule runs the `__init__` of its packages first. Those of `kubernetes` import the synchronous
client, requests, urllib3 and more: a third of the CPU time of `slipway get`, and 9 MB in every process that
talks to the API. So these packages are registered without running their `__init__` while the parts are
imported. The module that reads kubeconfigs imports the generated client, with pydantic and dateutil, for
functions that are not used here: 0.25 s of CPU time and 11 MB. So another class has its name meanwhile.
"""

import importlib.util
import sys
from types import ModuleType

_GENERATED_CLIENT = "kubernetes.aio.client.api_client"

_registered = [name for name in ("kubernetes", "kubernetes.aio") if name not in sys.modules]
for _name in _registered:
    _spec = importlib.util.find_spec(_name)
    assert _spec is not None
    sys.modules[_name] = importlib.util.module_from_spec(_spec)
_without_client = _GENERATED_CLIENT not in sys.modules
if _without_client:
    sys.modules[_GENERATED_CLIENT] = ModuleType(_GENERATED_CLIENT)
    vars(sys.modules[_GENERATED_CLIENT])["ApiClient"] = object

from kubernetes.aio import client, config  # noqa: E402 after the packages are registered
from kubernetes.aio.client.configuration import Configuration  # noqa: E402
from kubernetes.aio.client.rest import RESTClientObject  # noqa: E402
from kubernetes.aio.config.kube_config import KubeConfigMerger  # noqa: E402

for _name in _registered:  # `import kubernetes` elsewhere is an ordinary import
    del sys.modules[_name]
if _without_client:
    del sys.modules[_GENERATED_CLIENT]
    vars(client).pop("ApiClient", None)  # it keeps the classes that were imported from its modules

__all__ = ["Configuration", "KubeConfigMerger", "RESTClientObject", "config"]
