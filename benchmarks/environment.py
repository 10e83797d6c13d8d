"""What a result depends on besides the code: GPU, driver, versions, commit. Needs torch."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def describe() -> dict[str, str]:
    """Name -> version; what cannot be found out is left out."""
    import torch

    from fuser import version
    from fuser.runtime.kernels import nvrtc

    index = torch.cuda.current_device()
    found = {
        "gpu": torch.cuda.get_device_name(index),
        "driver": _output(["nvidia-smi", f"--id={index}", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "nvrtc": ".".join(map(str, nvrtc.version())),
        "cuda of torch": str(torch.version.cuda),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "python": platform.python_version(),
        "fuser": str(version()),
        "commit": _output(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
    }
    return {name: value for name, value in found.items() if value}


def missing() -> str:
    """What this machine lacks to run anything on a GPU, "" if nothing."""
    from fuser.runtime import driver

    if importlib.util.find_spec("torch") is None:
        return f"needs torch, which {sys.executable} does not have"
    if driver.device_count() == 0:
        return "needs a GPU, and there is none"
    return ""


def one_line(environment: dict[str, str]) -> str:
    """For titles."""
    return ", ".join(value if name == "gpu" else f"{name} {value}" for name, value in environment.items())


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
