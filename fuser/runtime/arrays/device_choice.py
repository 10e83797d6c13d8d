"""Which device an execution runs on: where its inputs are, what the caller asks for, what there is."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from fuser.errors import InputAssertionError, InputRuntimeError
from fuser.options import DEVICE
from fuser.runtime import driver
from fuser.runtime.array_view import ArrayView
from fuser.runtime.devices.device import Device, get_device
from fuser.runtime.scalars import is_scalar

_MAX_DEVICE_INDEX = 255


def has_gpu() -> bool:
    """Whether there is a CUDA device."""
    return driver.device_count() > 0


def parse_device(requested: object) -> tuple[str, int | None]:
    """(kind, index or None) of a device argument: an int, "cuda", "cuda:1", "simulator" or a torch device.

    Raises InputAssertionError for any other device and InputRuntimeError for an index outside [0, 255].
    """
    text = getattr(requested, "type", None)
    if isinstance(requested, bool):
        raise InputAssertionError(f"{requested!r} is not a device; give an index, 'cuda:<index>' or 'simulator'")
    if isinstance(requested, int):
        kind, index = "cuda", requested
    elif isinstance(requested, str):
        kind, _, digits = requested.partition(":")
        if digits and not digits.isdecimal():
            raise InputAssertionError(f"{requested!r} is not a device; give an index, 'cuda:<index>' or 'simulator'")
        index = int(digits) if digits else None
    elif isinstance(text, str):
        kind, index = text, getattr(requested, "index", None)
    else:
        shown = repr(requested) if is_scalar(requested) else type(requested).__name__
        raise InputAssertionError(f"{shown} is not a device; give an index, 'cuda:<index>' or 'simulator'")
    if kind not in ("cuda", "simulator"):
        raise InputAssertionError(
            f"device {str(requested)!r} cannot be used; give an index, 'cuda:<index>' or 'simulator'"
        )
    if index is not None and not 0 <= index <= _MAX_DEVICE_INDEX:
        raise InputRuntimeError(f"device index {index} is outside [0, {_MAX_DEVICE_INDEX}]")
    return kind, index


def resolve_device(inputs: Iterable[object], requested: object = None) -> Device:
    """The device an execution runs on.

    `inputs` are ArrayViews (others, such as numbers, do not matter). In order: the device of the inputs that live on
    one, `requested`, FUSER_DEVICE, the current GPU, the simulator. Where all inputs are in host memory,
    FUSER_DEVICE=simulator overrides a requested GPU.
    Host arrays run on any device, but torch and JAX host tensors of rank > 0 only on the simulator.

    Raises InputRuntimeError for inputs on two devices or on another than the requested one, InputAssertionError for
    what is no usable device, NoDeviceError for a GPU that is not there.
    """
    views = [x for x in inputs if isinstance(x, ArrayView)]
    kind, index = (None, None) if requested is None else parse_device(requested)
    if kind == "simulator":
        index = index or 0
    found: tuple[str, int] | None = None
    for view in views:
        if view.device[0] == "cpu":
            continue
        if found is not None and view.device != found:
            raise InputRuntimeError(f"Expected all inputs on one device, got {_spell(found)} and {_spell(view.device)}")
        found = view.device
    if found is not None:
        if kind is not None and (kind != found[0] or (index is not None and index != found[1])):
            wanted = kind if index is None else f"{kind}:{index}"
            raise InputRuntimeError(f"Expected inputs on device {wanted}, got one on {_spell(found)}")
        # Our own tensors know their device, which need not be the registered one (a simulator made by hand).
        own = [view.owner.device for view in views if view.kind == "fuser"]
        if any(device is not own[0] for device in own):
            raise InputRuntimeError(f"Expected all inputs on one device, got several called {_spell(found)}")
        return own[0] if own else get_device(*found)
    if kind is None:
        kind, index = _default_device()
    elif kind == "cuda" and DEVICE.get() == "simulator":
        kind, index = "simulator", 0
    if kind == "cuda":
        if index is None:
            index = current_cuda_device()
        for view in views:
            refuse_host_tensor(view, f"cuda:{index}")
    return get_device(kind, index or 0)


def refuse_host_tensor(view: ArrayView, device: str) -> None:
    """Raise InputRuntimeError for a host tensor of a device framework that a GPU execution cannot take."""
    if view.device[0] == "cpu" and view.sizes and view.kind != "numpy":
        raise InputRuntimeError(
            f"Found unsupported device cpu, only scalar CPU or CUDA tensors are supported: a {view.kind} tensor of rank "
            f"{len(view.sizes)} in host memory cannot run on {device}; move it to the GPU or pass device='simulator'"
        )


def _default_device() -> tuple[str, int | None]:
    chosen = DEVICE.get()
    if chosen is not None:
        return parse_device(chosen)
    return ("cuda", None) if has_gpu() else ("simulator", 0)


def current_cuda_device() -> int:
    """Index of the framework's current device: torch's if the program imported it and it started CUDA, else 0."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.current_device())
    return 0


def _spell(device: tuple[str, int]) -> str:
    return f"{device[0]}:{device[1]}"
