"""`python -m fuser <command>`: what this machine can run, and a tour of the project."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable


class Command(NamedTuple):
    """A subcommand: the module whose `main(arguments) -> exit code` it runs, imported when it is called."""

    module: str
    doc: str


COMMANDS: dict[str, Command] = {
    "doctor": Command("fuser.doctor", "what this machine has, what is missing, what to do about it"),
    "demo": Command("fuser.demo", "define, explain and run fusions; --input FILE.npy for your own data"),
    "tune": Command("fuser.tune", "run a script, and measure parameters for every program that it runs"),
    "cache": Command("fuser.cache", "the disk cache: info, verify, clear; tuning records: export, import"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command that `arguments` (default: the process's) names. Returns the exit code, 2 for misuse."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in (["--version"], ["-V"]):
        from fuser.release import __version__

        print(f"fuser {__version__}")
        return 0
    name = arguments[0] if arguments else "--help"
    if name in ("--help", "-h", "help"):
        print(_usage())
        return 0
    if name not in COMMANDS:
        print(f"fuser: there is no command {name!r}{_meant(name)}\n{_usage()}", file=sys.stderr)
        return 2
    run = cast("Callable[[list[str]], int]", importlib.import_module(COMMANDS[name].module).main)
    return run(arguments[1:])


def _meant(name: str) -> str:
    """`; did you mean 'doctor'?` for what is spelled like a command, or what runs a program."""
    if name.endswith(".py") or name in ("run", "exec"):
        return "; a program of yours is run by python itself, python FILE.py"
    from difflib import get_close_matches

    known = {name.strip("-"): name for name in (*COMMANDS, "--version", "--help")}
    like = get_close_matches(name.strip("-").lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {known[like[0]]!r}?" if like else ""


def _usage() -> str:
    lines = [f"  fuser {name:10}{command.doc}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: fuser <command> [arguments]   (or python -m fuser)", *lines])


if __name__ == "__main__":
    sys.exit(main())
