"""The identity of a Pod on this node: its address, its user and its Unix socket. Pure."""

from dataclasses import dataclass

from serving.objects import Object
from serving.resources import names


@dataclass(frozen=True)
class PodIdentity:
    """Address, user and socket of a Pod, constant over restarts of its containers and of the node."""

    address: str
    user: int | None
    """User id and group id of its processes; None if they run as the user of the node agent."""
    socket_port: int | None = None
    """The containerPort whose requests come by a Unix socket, if any: `names.SOCKET_PORT_ANNOTATION`."""

    @classmethod
    def recorded(cls, info: Object) -> "PodIdentity | None":
        """Return the identity in `info`, the record in a Pod's directory; None if `info` has no identity."""
        return (
            cls(info["ip"], info["user"], info.get("socketPort")) if {"ip", "user"} <= info.keys() else None
        )

    def record(self) -> Object:
        """Return the entries of a Pod's record from which `recorded` reads this identity."""
        return {"ip": self.address, "user": self.user, "socketPort": self.socket_port}

    @property
    def socket(self) -> str | None:
        """The file name of the Pod's Unix socket, if the Pod has one."""
        return None if self.socket_port is None else names.pod_socket_name(self.address, self.socket_port)
