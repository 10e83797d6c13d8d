"""Limits of a device as plain data: what planning stages see instead of a device."""

from __future__ import annotations

from dataclasses import replace

from fuser.errors import DefinitionValueError
from fuser.missing_names import like_names
from fuser.records import record
from fuser.tracebacks import short_traceback

INSTRUCTION_BYTES = 16
"""Of one machine instruction, from compute capability 7.0 on."""

SECTOR_BYTES = 32
"""What the caches read and write as one."""


@record
class DeviceInfo:
    """Limits of one device. Sizes in bytes, `arch` as NVRTC takes it (`sm_90a`)."""

    name: str
    arch: str
    sm_count: int
    max_threads_per_block: int = 1024
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    shared_per_block: int = 49152
    shared_per_block_optin: int = 232448
    shared_per_sm: int = 233472
    l2_bytes: int = 60 * 2**20
    memory_bytes_per_ns: float = 4275.0
    warp_size: int = 32
    max_access_bytes: int = 16
    max_cluster: int = 16
    instruction_cache_bytes: int = 131072

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor), read off `arch`."""
        digits = self.arch.removeprefix("sm_").rstrip("af")
        return int(digits[:-1]), int(digits[-1])

    @staticmethod
    @short_traceback
    def preset(name: str) -> DeviceInfo:
        """A known device: `H200`, or `sm_75` ... `sm_120a`.

        Raises DefinitionValueError for a name that is not known, listing those that are.
        """
        found = _PRESETS.get(name)
        if found is None:
            close = like_names(str(name), [known.lower() for known in _PRESETS])[:1]
            meant = "".join(f"did you mean {known!r}? " for known in _PRESETS if known.lower() in close)
            raise DefinitionValueError(f"no device preset {name!r}; {meant}known: {', '.join(_PRESETS)}")
        return found


# A call that lacks limits is told of the presets.
DeviceInfo.__init__ = short_traceback(DeviceInfo.__init__)


def largest_cluster(major: int) -> int:
    """Blocks of the largest cluster by the major number of the compute capability; above 8 a kernel has to opt in."""
    return 1 if major < 9 else 16 if major < 12 else 8


H200 = DeviceInfo("H200", "sm_90a", 132)


def _preset(
    arch: str, sm_count: int, optin: int, per_sm: int, threads_per_sm: int, l2_mib: int, bandwidth: float
) -> DeviceInfo:
    return replace(
        H200,
        name=arch,
        arch=arch,
        sm_count=sm_count,
        shared_per_block_optin=optin,
        shared_per_sm=per_sm,
        max_threads_per_sm=threads_per_sm,
        max_blocks_per_sm=16 if threads_per_sm <= 1536 else 32,
        l2_bytes=l2_mib * 2**20,
        memory_bytes_per_ns=bandwidth,
        max_access_bytes=32 if int(arch.removeprefix("sm_").rstrip("af")) >= 100 else 16,
        max_cluster=largest_cluster(int(arch.removeprefix("sm_").rstrip("af")) // 10),
    )


_PRESETS: dict[str, DeviceInfo] = {
    "H200": H200,
    "sm_75": _preset("sm_75", 40, 65536, 65536, 1024, 4, 280.0),
    "sm_80": _preset("sm_80", 108, 166912, 167936, 2048, 40, 1800.0),
    "sm_86": _preset("sm_86", 84, 101376, 102400, 1536, 6, 850.0),
    "sm_89": _preset("sm_89", 128, 101376, 102400, 1536, 72, 920.0),
    "sm_90": replace(H200, name="sm_90", arch="sm_90"),
    "sm_90a": replace(H200, name="sm_90a"),
    "sm_100": _preset("sm_100", 148, 232448, 233472, 2048, 126, 7000.0),
    "sm_100a": _preset("sm_100a", 148, 232448, 233472, 2048, 126, 7000.0),
    "sm_120": _preset("sm_120", 170, 101376, 102400, 1536, 96, 1600.0),
    "sm_120a": _preset("sm_120a", 170, 101376, 102400, 1536, 96, 1600.0),
}
