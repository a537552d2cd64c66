import subprocess
import sys


def test_api_server_imports_no_library_of_a_command_line() -> None:
    program = "import sys; import serving.embedded.apiserver.server; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "cel" in imported.stdout.split()
    assert not {"typer", "rich", "prompt_toolkit", "pygments"} & set(imported.stdout.split())
