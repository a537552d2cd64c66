"""The identity of a Pod on this node: its address and its user. Pure."""

from dataclasses import dataclass

from serving.objects import Object


@dataclass(frozen=True)
class PodIdentity:
    """Address, user and socket of a Pod, constant over restarts of its containers and of the node."""

    address: str
    user: int | None
    """Its user id, and its group id; None for those of the agent."""
    socket_port: int | None = None
    """The containerPort whose requests come by a Unix socket, if any: `names.SOCKET_PORT_ANNOTATION`."""

    @classmethod
    def recorded(cls, info: Object) -> "PodIdentity | None":
        """Return the identity in a Pod's record; None if there is none."""
        return (
            cls(info["ip"], info["user"], info.get("socketPort")) if {"ip", "user"} <= info.keys() else None
        )

    def record(self) -> Object:
        """Return the entries of a Pod's record."""
        return {"ip": self.address, "user": self.user, "socketPort": self.socket_port}

    @property
    def socket(self) -> str | None:
        """The file name of its Unix socket, if it has one."""
        return None if self.socket_port is None else f"{self.address}:{self.socket_port}"
