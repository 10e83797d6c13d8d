"""The process in which candidates run for the first time: what faults or hangs there takes nothing of the caller with it.

    parent   one line of JSON: {"folder": ..., "programs": [number, ...]}
    child    "begin <number>", then "done <number>" or "failed <number> <why>", for each; "end" after the last
             "broken <why>" where what the folder holds cannot be put on the device

A folder has `values.json` (of every slot its element type, sizes, strides, low bits of the address, and the file of its bytes,
if it is read) and the programs, `<number>.program`, whose inputs these are. The child imports no stage of the compiler.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TextIO

from fuser.host_ir.saved_programs import load
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor, OwnedMemory
from fuser.runtime.devices.device import Device, get_device
from fuser.runtime.layouts import element_span

VALUES = "values.json"


def main(arguments: list[str]) -> int:
    """`<kind of device> <index>`: answer requests until there are no more."""
    kind, index = arguments
    device = get_device(kind, int(index))
    for line in sys.stdin:
        serve(device, json.loads(line), sys.stdout)
    return 0


def serve(device: Device, request: dict[str, Any], out: TextIO) -> None:
    """Run the programs of a request, one after the other."""
    folder = Path(request["folder"])
    try:
        told = json.loads((folder / VALUES).read_text("utf-8"))
        values = {name: _placed(device, folder, value) for name, value in told.items()}
        device.synchronize(0)
    except Exception as error:
        _say(out, f"broken {_text(error)}")
        return
    for number in request["programs"]:
        _say(out, f"begin {number}")
        try:
            program = load(folder / f"{number}.program")
            program.run([values[name] for name in program.inputs], 0, device=device)
            device.synchronize(0)
        except Exception as error:
            _say(out, f"failed {number} {_text(error)}")
        else:
            _say(out, f"done {number}")
    _say(out, "end")


def _placed(device: Device, folder: Path, value: dict[str, Any]) -> DeviceTensor:
    """A value on the device, at an address with the same low bits."""
    import numpy as np

    dtype = DataType[value["dtype"]]
    nbytes = element_span(value["sizes"], value["strides"]) * dtype.itemsize
    allocation = device.allocate(max(1, nbytes + value["shift"]), 0)
    address = allocation.address + value["shift"]
    if value["file"] is not None and nbytes:
        device.copy_from_host(address, np.fromfile(folder / value["file"], np.uint8), 0)
    owner = OwnedMemory(device, allocation, 0)
    return DeviceTensor(device, dtype, value["sizes"], value["strides"], address, owner)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _say(out: TextIO, line: str) -> None:
    out.write(line + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
