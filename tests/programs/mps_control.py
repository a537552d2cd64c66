"""A fake of NVIDIA's MPS control daemon, a program on PATH with its start, answers and exit."""

from pathlib import Path

PROGRAM = """#!/bin/sh
control="$CUDA_MPS_PIPE_DIRECTORY/control"
if [ "$1" = -d ]; then
    [ -e "$control" ] && { echo "An instance of this daemon is already running" >&2; exit 1; }
    echo "$(id -u) $CUDA_VISIBLE_DEVICES" > "$control" || exit
    echo started >> "$CUDA_MPS_LOG_DIRECTORY/control.log"
    exit $?
fi
[ -e "$control" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
read -r command
case "$command" in
    get_default_active_thread_percentage) echo 100.0 ;;
    quit) rm "$control" ;;
esac
"""


def install(directory: Path, program: str = PROGRAM) -> None:
    """Write the program into a directory that all users may enter."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    path = directory / "nvidia-cuda-mps-control"
    path.write_text(program)
    path.chmod(0o755)
