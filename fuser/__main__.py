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
    "cache": Command("fuser.cache", "the disk cache: info, verify, clear"),
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
        print(f"fuser: there is no command {name!r}\n{_usage()}", file=sys.stderr)
        return 2
    run = cast("Callable[[list[str]], int]", importlib.import_module(COMMANDS[name].module).main)
    return run(arguments[1:])


def _usage() -> str:
    lines = [f"  fuser {name:10}{command.doc}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: fuser <command> [arguments]   (or python -m fuser)", *lines])


if __name__ == "__main__":
    sys.exit(main())
