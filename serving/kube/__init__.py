"""The client of the Kubernetes API: requests, informers, own writes overlaid on their copies,
a reconcile loop and Events.

Connections are by `kubernetes.aio`. Objects are plain JSON dictionaries: the typed client costs a second of
import and most of a core at 1,000 services, and does not have Slipway's kinds.
"""

from serving.kube.connection.client import Kube, connect, connect_eventually
from serving.kube.discovery import serves
from serving.kube.events import EventRecorder
from serving.kube.informer import Informer, Key
from serving.kube.loop import Reconciler, Result
from serving.kube.node_versions import VersionReader
from serving.kube.optional_informer import OptionalInformer
from serving.kube.settling import Settling
from serving.kube.watches import Watches

__all__ = [
    "EventRecorder",
    "Informer",
    "Key",
    "Kube",
    "OptionalInformer",
    "Reconciler",
    "Result",
    "Settling",
    "VersionReader",
    "Watches",
    "connect",
    "connect_eventually",
    "serves",
]
