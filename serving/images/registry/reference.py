"""References to images: `HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]`. Pure.

Grammar: github.com/distribution/reference. The host is mandatory: a name without one is on Docker Hub for
some tools, and a local image for others.
"""

import re
from dataclasses import dataclass, replace

from serving import errors
from serving.system.network.addresses import is_loopback

_LABEL = r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:.]+\])(?::(?P<port>[0-9]{{1,5}}))?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_NAME = 255
"""Most characters of host and repository together (distribution's limit)."""
DOCKER_HUB = "docker.io"
_DOCKER_HUB_API = "registry-1.docker.io"


@dataclass(frozen=True)
class Reference:
    """An image, or a repository if it has neither tag nor digest."""

    host: str
    """With the port, if it has one."""
    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Parse a reference.

        Raises:
            errors.Permanent: `InvalidReference`; the message names the part, the rule and the value.
        """
        host, slash, path = text.partition("/")
        if not slash or not _looks_like_host(host):
            raise _invalid(
                text, "must begin with the registry's host, as in registry.example:5000/models/digits"
            )
        name, at, digest = path.partition("@")
        if at and not _DIGEST.fullmatch(digest):
            raise _invalid(text, f"the digest must be `sha256:` and 64 hexadecimal digits, got {digest!r}")
        repository, colon, tag = name.partition(":")
        if colon and not _TAG.fullmatch(tag):
            raise _invalid(text, f"the tag must match {_TAG.pattern}, got {tag!r}")
        _check_host(text, host)
        if host == DOCKER_HUB and "/" not in repository:
            repository = f"library/{repository}"
        if not _REPOSITORY.fullmatch(repository):
            raise _invalid(
                text,
                "the repository must be lower-case letters, digits and single `.`, `_`, `-`, `/` "
                f"between them, got {repository!r}",
            )
        if len(host) + 1 + len(repository) > _MAX_NAME:
            raise _invalid(text, f"host and repository must have at most {_MAX_NAME} characters together")
        return cls(host, repository, tag, digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"

    @property
    def name(self) -> str:
        """Host and repository."""
        return f"{self.host}/{self.repository}"

    @property
    def api_host(self) -> str:
        """Host of the API: `host`, but for Docker Hub."""
        return _DOCKER_HUB_API if self.host == DOCKER_HUB else self.host

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine, so that plain HTTP is as safe as TLS."""
        host = self.host if self.host.endswith("]") else self.host.rpartition(":")[0] or self.host
        return is_loopback(host.strip("[]"))

    def tagged(self, tag: str) -> "Reference":
        """Return the same repository with this tag and no digest."""
        return replace(self, tag=tag, digest="")

    def at(self, digest: str) -> "Reference":
        """Return the same repository with this digest and no tag."""
        return replace(self, tag="", digest=digest)

    def sibling(self, repository: str) -> "Reference":
        """Return another repository of the same registry."""
        return Reference.parse(f"{self.host}/{repository}")


def _looks_like_host(text: str) -> bool:
    """Whether the first segment is a host; without a dot or colon, Docker takes it for a repository's."""
    return "." in text or ":" in text or text == "localhost"


def _check_host(text: str, host: str) -> None:
    match = _HOST.fullmatch(host)
    if match is None:
        raise _invalid(text, f"the host must be a DNS name or an address with an optional port, got {host!r}")
    if match["port"] and not 0 < int(match["port"]) < 65536:
        raise _invalid(text, f"the port must be 1 to 65535, got {match['port']}")


def _invalid(text: str, rule: str) -> errors.Permanent:
    return errors.Permanent("InvalidReference", f"image reference {text!r}: {rule}")
