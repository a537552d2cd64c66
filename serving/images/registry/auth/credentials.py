"""Who to be at a registry: from the user's Docker configuration and its helper programs, or from a Secret.

The file is read at every look-up of a login, so that a `docker login` counts at once; tokens are kept elsewhere.
"""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving import errors
from serving.images.registry.auth import docker_config
from serving.images.registry.auth.docker_config import DockerConfig, Login
from serving.images.registry.reference import DOCKER_HUB, Reference
from serving.settings import DEFAULTS

_TOKEN_USER = "<token>"  # noqa: S105 the helpers' word for "the secret is an identity token", no password
_NOT_FOUND = "credentials not found in native keychain"
"""What every helper says where it has none (github.com/docker/docker-credential-helpers, credentials/error.go)."""


class Credentials:
    """Logins by registry and repository."""

    def __init__(
        self, read: Callable[[], DockerConfig], helper_seconds: float = DEFAULTS.registry.helper_seconds
    ) -> None:
        self._read = read
        self._helper_seconds = helper_seconds

    @classmethod
    def none(cls) -> "Credentials":
        """Anonymous everywhere."""
        return cls(DockerConfig)

    @classmethod
    def from_docker(cls, directory: Path | None = None) -> "Credentials":
        """Use `config.json` of Docker's directory (`$DOCKER_CONFIG`, else `~/.docker`), where there is one."""

        def read() -> DockerConfig:
            base = directory or Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
            path = base / "config.json"
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return DockerConfig()
            except OSError as error:
                raise errors.Permanent("InvalidCredentials", f"{path}: cannot be read: {error}") from error
            return docker_config.parse(data, str(path), programs=True)

        return cls(read)

    @classmethod
    def from_secret(cls, data: bytes, name: str) -> "Credentials":
        """Use the bytes of a Secret's `.dockerconfigjson`.

        Args:
            data: the JSON, no longer base64.
            name: the Secret's, for messages.

        Raises:
            errors.Permanent: `InvalidCredentials`.
        """
        config = docker_config.parse(data, f"Secret {name}: .dockerconfigjson", programs=False)
        return cls(lambda: config)

    async def login(self, reference: Reference) -> Login | None:
        """Return the login for a repository, or None to go without.

        Raises:
            errors.Permanent: `InvalidCredentials`, the file or the helper cannot be used.
            errors.Temporary: `CredentialHelperFailed`, it did not answer in time or failed.
        """
        config = await asyncio.to_thread(self._read)
        if helper := config.helper(reference.host):
            server = docker_config.HUB_SERVER if reference.host == DOCKER_HUB else reference.host
            if (login := await self._ask(helper, server)) is not None:
                return login
        return config.login(reference.host, reference.repository)

    async def _ask(self, helper: str, server: str) -> Login | None:
        program = f"docker-credential-{helper}"
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                "get",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise errors.Permanent("InvalidCredentials", f"{program} cannot be run: {error}") from error
        try:
            async with asyncio.timeout(self._helper_seconds):
                out, _ = await process.communicate(server.encode())
        except TimeoutError as error:
            raise errors.Temporary(
                "CredentialHelperFailed", f"{program} did not answer within {self._helper_seconds:g} s"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            if _NOT_FOUND in out.decode(errors="replace"):
                return None
            raise errors.Temporary("CredentialHelperFailed", f"{program} failed with {process.returncode}")
        return _helped(program, out)


def _helped(program: str, out: bytes) -> Login:
    try:
        answer: Any = json.loads(out)
        username, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError) as error:
        raise errors.Permanent(
            "InvalidCredentials", f"{program} must answer {{Username, Secret}} as JSON"
        ) from error
    if username == _TOKEN_USER:
        return Login(identity_token=secret)
    return Login(username, secret)
