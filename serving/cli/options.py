"""Options that several commands have. Imports nothing that does any work."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="The API to talk to.  [default: that of the running `up`, else the current one]")
]  # fmt: skip
DataDirOfUp = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Talk to the `up` of this directory.")
]
OwnDataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Where everything lies.  [default: $SLIPWAY_DATA_DIR or ~/.local/share/slipway]")
]  # fmt: skip
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The configuration file.  [default: DIR/config.yaml, where it exists]")
]  # fmt: skip
Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", metavar="NAME", help="[default: the kubeconfig's, else default]"),
]
Output = Literal["table", "wide", "json", "yaml", "name"]
