"""The command line: it names its commands, and imports a command's module only when that command is called."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fuser.__main__ import COMMANDS, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"fuser {name}" in text for name in COMMANDS)


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("dokter", "; did you mean 'doctor'?"),
        ("--verison", "; did you mean '--version'?"),
        ("version", "; did you mean '--version'?"),
        ("softmax.py", "; a program of yours is run by python itself, python FILE.py"),
        ("run", "; a program of yours is run by python itself, python FILE.py"),
        ("explain", ""),
    ],
)
def test_unknown_command(command: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 2
    assert capsys.readouterr().err.startswith(f"fuser: there is no command {command!r}{meant}\nusage: fuser <command>")


def test_python_m_fuser() -> None:
    done = subprocess.run([sys.executable, "-m", "fuser", "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NVRTC" in done.stdout
