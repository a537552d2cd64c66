"""The modules of the processes that tests fork most often."""

import uvloop  # noqa: F401

import serving.embedded.apiserver.server
import serving.embedded.kubelet.agent
import serving.resources.catalog  # noqa: F401
import tests.rig.servers.api_process
import tests.rig.servers.node_process  # noqa: F401
