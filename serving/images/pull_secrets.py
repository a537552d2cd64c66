"""The logins in a Pod's pull Secrets, which a volume has as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from serving import errors
from serving.images.registry.auth import docker_config
from serving.images.registry.auth.credentials import Credentials
from serving.images.registry.auth.docker_config import DockerConfig, Login
from serving.resources import names as variables


class PullSecrets:
    """The Secrets by these names; the file of each is `DIRECTORY/NAME`.

    As for the kubelet, a missing Secret is no error before a registry asks for a login.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        """Read the files.

        Raises:
            errors.Permanent: `InvalidCredentials`; the message names the Secret and the field.
        """
        self._missing = [name for name in names if not (directory / name).is_file()]
        auths: dict[str, Login] = {}
        for name in names:
            if name not in self._missing:
                where = f"Secret {name}: .dockerconfigjson"
                # Without helper programs: the author of a Secret would run them in this container.
                config = docker_config.parse((directory / name).read_bytes(), where, programs=False)
                auths = {**config.auths, **auths}  # the login of an earlier Secret has precedence
        self._config = DockerConfig(auths)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "PullSecrets":
        """Read the files of the Secrets that SLIPWAY_PULL_SECRETS and SLIPWAY_PULL_SECRETS_DIR name.

        Raises:
            errors.Permanent: `InvalidCredentials`.
        """
        listed = environment.get(variables.PULL_SECRETS_ENV, "").split(",")
        directory = Path(environment.get(variables.PULL_SECRETS_DIR_ENV, ""))
        return cls(directory, [name for name in listed if name])

    @property
    def credentials(self) -> Credentials:
        """The logins of all Secrets; of two logins for the same repository, that of the first Secret."""
        return Credentials(lambda: self._config)

    def explain(self, error: errors.Permanent) -> errors.Permanent:
        """Return the error; if the registry refused the login, its message also names the missing Secrets."""
        if error.reason != "Unauthorized":
            return error
        if self._missing:
            missing = ", ".join(self._missing)
            return errors.Permanent(error.reason, f"{error}; no .dockerconfigjson in Secret {missing}")
        return error
