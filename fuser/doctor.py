"""`fuser doctor`: what this machine has, what is missing, and what to do about each.

`inspect_machine` asks a `Machine` and gives findings; `render` words them; `main` is the command. Nothing here needs a
GPU, a driver or an optional package, and no probe that fails stops the others. `ThisMachine` is the real one; tests
hand in others.

The exit code is 0 if the project can compile and simulate here, else 1. A missing GPU or optional package is no error.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal, Protocol, assert_never

from fuser import options
from fuser.errors import InputValueError, LaunchError, NoDeviceError
from fuser.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuser.ir.device_info import DeviceInfo

Version = tuple[int, int]
"""(major, minor) of a CUDA component."""


@record
class Gpu:
    """A GPU as the driver describes it. `memory` in bytes."""

    name: str
    compute_capability: Version
    sm_count: int
    memory: int


@record
class Nvrtc:
    """The NVRTC library that gets loaded. `archs` are the compute capabilities it compiles for, as in 75 or 120."""

    version: Version
    path: str
    archs: tuple[int, ...]


@record
class Driver:
    """The NVIDIA driver: the newest CUDA version it can run, its GPUs, and its own words if it did not start."""

    version: Version
    gpus: tuple[Gpu, ...]
    trouble: str = ""


class Machine(Protocol):
    """What the doctor asks. A probe of something absent raises, and the text of the error is shown."""

    def environment(self) -> Mapping[str, str]:
        """The environment variables."""
        ...

    def python(self) -> str:
        """Python's version and the platform."""
        ...

    def package_version(self, distribution: str) -> str | None:
        """Version of an installed distribution, from its metadata, without importing it; None if not installed."""
        ...

    def nvrtc(self) -> Nvrtc:
        """The NVRTC in use."""
        ...

    def driver(self) -> Driver:
        """The driver and its GPUs."""
        ...


Status = Literal["ok", "missing", "wrong", "absent"]
"""`ok`; `missing` or `wrong`: the project cannot compile and simulate; `absent`: it can, with less."""


@record
class Finding:
    """One line of the report; `remedy` is what to do, empty where there is nothing to do."""

    section: Literal["required", "GPU", "optional"]
    subject: str
    status: Status
    detail: str
    remedy: str = ""


# distribution -> what it is for
REQUIRED_PACKAGES: dict[str, str] = {
    "numpy": "host arrays, and the simulator runs on it",
    "ml_dtypes": "bfloat16 and float8 in the simulator",
}

OPTIONAL_PACKAGES: dict[str, tuple[tuple[str, ...], str]] = {
    "sympy": (("sympy",), "formulas in fd.explain and FUSER_VERIFY=proofs"),
    "torch": (("torch",), "torch tensors as inputs and outputs"),
    "cupy": (("cupy-cuda12x", "cupy-cuda13x", "cupy"), "CuPy arrays as inputs and outputs"),
    "jax": (("jax",), "JAX arrays as inputs and outputs"),
}


def inspect_machine(machine: Machine) -> list[Finding]:
    """Every finding, in the order of the report."""
    nvrtc = _inspect_nvrtc(machine)
    driver = _inspect_driver(machine)
    findings = [
        Finding("required", "python", "ok", machine.python()),
        *(_required_package(machine, name, purpose) for name, purpose in REQUIRED_PACKAGES.items()),
        _nvrtc_finding(nvrtc, _environment_fault(machine.environment())),
        *_environment_findings(machine.environment(), nvrtc),
        _bindings_finding(machine),
        *_gpu_findings(driver, nvrtc),
        *(_optional_package(machine, name) for name in OPTIONAL_PACKAGES),
    ]
    order = ("required", "GPU", "optional")
    return sorted(findings, key=lambda finding: order.index(finding.section))


def can_compile_and_simulate(findings: list[Finding]) -> bool:
    """True if no finding stands in the way of compiling and simulating."""
    return all(finding.status in ("ok", "absent") for finding in findings)


# ---------------------------------------------------------------- what is required


def _required_package(machine: Machine, distribution: str, purpose: str) -> Finding:
    version = machine.package_version(distribution)
    if version is not None:
        return Finding("required", distribution, "ok", version)
    return Finding("required", distribution, "missing", f"not installed; {purpose}", f"pip install {distribution}")


def _inspect_nvrtc(machine: Machine) -> Nvrtc | str:
    try:
        return machine.nvrtc()
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        return _one_line(error)


def _nvrtc_finding(nvrtc: Nvrtc | str, fault: str) -> Finding:
    if isinstance(nvrtc, str):
        # The loader reads options: a wrong one says nothing about the library.
        if fault:
            return Finding("required", "NVRTC", "missing", "not looked for: an option is wrong", "see options")
        return Finding(
            "required",
            "NVRTC",
            "missing",
            f"cannot be loaded: {nvrtc}",
            "pip install nvidia-cuda-nvrtc-cu12, or point FUSER_NVRTC at a libnvrtc.so",
        )
    return Finding("required", "NVRTC", "ok", f"{_dotted(nvrtc.version)}, {nvrtc.path}")


def _environment_fault(environment: Mapping[str, str]) -> str:
    """What is wrong with the options in the environment; empty if nothing."""
    try:
        options.check_environment(environment)
    except InputValueError as error:
        return _one_line(error)
    return ""


def _environment_findings(environment: Mapping[str, str], nvrtc: Nvrtc | str) -> list[Finding]:
    fault = _environment_fault(environment)
    if fault:
        return [Finding("required", "options", "wrong", fault, "correct or unset that variable")]
    in_force = [f"{row.env}={environment[row.env]}" for row in options.OPTIONS if environment.get(row.env)]
    findings = [Finding("required", "options", "ok", ", ".join(in_force))] if in_force else []
    expected = options.EXPECT_NVRTC.get(environment)
    if expected is not None and not isinstance(nvrtc, str) and nvrtc.version != expected:
        detail = f"FUSER_EXPECT_NVRTC asks for NVRTC {_dotted(expected)}, loaded is {_dotted(nvrtc.version)}"
        remedy = "keep one NVRTC package per environment: if several are installed, the newest is loaded"
        findings.append(Finding("required", "options", "wrong", detail, remedy))
    return findings


# ---------------------------------------------------------------- the GPU


def _bindings_finding(machine: Machine) -> Finding:
    version = machine.package_version("cuda-bindings")
    if version is not None:
        return Finding("GPU", "cuda-bindings", "ok", version)
    return Finding("GPU", "cuda-bindings", "absent", "not installed; the way to the driver", "pip install cuda-python")


def _inspect_driver(machine: Machine) -> Driver | str:
    try:
        return machine.driver()
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        return _one_line(error)


def _gpu_findings(driver: Driver | str, nvrtc: Nvrtc | str) -> list[Finding]:
    if isinstance(driver, str):
        remedy = "to run on a GPU, install the NVIDIA driver; without one, fusions compile and run on the simulator"
        return [Finding("GPU", "driver", "absent", driver, remedy)]
    findings = [Finding("GPU", "driver", "ok", f"runs CUDA up to {_dotted(driver.version)}")]
    if not isinstance(nvrtc, str) and nvrtc.version[0] > driver.version[0]:
        detail = f"NVRTC {_dotted(nvrtc.version)} makes binaries that this driver cannot load"
        remedy = f"pip install {_nvrtc_package(driver.version[0])} (and no newer one), or update the driver"
        findings.append(Finding("GPU", "NVRTC", "absent", detail, remedy))
    if not driver.gpus:
        detail = driver.trouble or "the driver finds no GPU"
        remedy = "check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, check that it was given a GPU"
        findings.append(Finding("GPU", "GPU", "absent", detail, remedy))
    for index, gpu in enumerate(driver.gpus):
        detail = (
            f"{gpu.name}, compute capability {_dotted(gpu.compute_capability)}, {gpu.sm_count} SMs, "
            f"{gpu.memory / 2**30:.1f} GiB"
        )
        findings.append(Finding("GPU", f"cuda:{index}", "ok", detail))
        findings.extend(_arch_findings(index, gpu, nvrtc))
    return findings


def _arch_findings(index: int, gpu: Gpu, nvrtc: Nvrtc | str) -> list[Finding]:
    """What stands between this GPU and this NVRTC: too old for it, or too new."""
    if isinstance(nvrtc, str) or not nvrtc.archs:
        return []
    arch = gpu.compute_capability[0] * 10 + gpu.compute_capability[1]
    if arch in nvrtc.archs:
        return []
    if arch < min(nvrtc.archs):
        detail = f"NVRTC {_dotted(nvrtc.version)} no longer compiles for sm_{arch}"
        return [Finding("GPU", f"cuda:{index}", "absent", detail, "pip install nvidia-cuda-nvrtc-cu12")]
    base = max(known for known in nvrtc.archs if known < arch)
    detail = (
        f"NVRTC {_dotted(nvrtc.version)} does not know sm_{arch}: kernels are compiled to PTX of compute_{base} "
        "and the driver translates them at load"
    )
    return [Finding("GPU", f"cuda:{index}", "absent", detail, "for binaries, install a newer NVRTC")]


def _nvrtc_package(cuda_major: int) -> str:
    return "nvidia-cuda-nvrtc-cu12" if cuda_major <= 12 else f"'nvidia-cuda-nvrtc=={cuda_major}.*'"


# ---------------------------------------------------------------- what is optional


def _optional_package(machine: Machine, name: str) -> Finding:
    distributions, purpose = OPTIONAL_PACKAGES[name]
    for distribution in distributions:
        version = machine.package_version(distribution)
        if version is not None:
            return Finding("optional", name, "ok", version if distribution == name else f"{version} ({distribution})")
    remedy = f"for {purpose}: pip install {distributions[0]}"
    return Finding("optional", name, "absent", "not installed", remedy)


# ---------------------------------------------------------------- the report


def render(findings: list[Finding]) -> str:
    """The report as text: the findings by section, each remedy under its finding, and the verdict."""
    lines: list[str] = []
    section = ""
    for finding in findings:
        if finding.section != section:
            lines += ["", finding.section] if lines else [finding.section]
            section = finding.section
        lines.append(f"  {_mark(finding.status):8}{finding.subject:15}{finding.detail}")
        if finding.remedy:
            lines.append(f"  {'':23}-> {finding.remedy}")
    return "\n".join([*lines, "", verdict(findings)])


def verdict(findings: list[Finding]) -> str:
    """What can be done on this machine, in a line."""
    if not can_compile_and_simulate(findings):
        blocking = ", ".join(finding.subject for finding in findings if finding.status in ("missing", "wrong"))
        return f"This machine cannot compile and simulate yet; see {blocking} above."
    if any(finding.section == "GPU" and finding.subject.startswith("cuda:") for finding in findings):
        if any(finding.subject == "NVRTC" and finding.section == "GPU" for finding in findings):
            return "This machine can compile and simulate; its GPU waits for an NVRTC that the driver can follow."
        return "This machine can compile, simulate, and run on its GPU."
    return "This machine can compile and simulate; it has no GPU to run on."


def _mark(status: Status) -> str:
    match status:
        case "ok":
            return "ok"
        case "missing":
            return "MISSING"
        case "wrong":
            return "WRONG"
        case "absent":
            return "-"
        case _:
            assert_never(status)


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# ---------------------------------------------------------------- the machine at hand


class ThisMachine:
    """The machine this process runs on."""

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def python(self) -> str:
        import platform

        return f"{platform.python_version()} on {platform.system()} {platform.machine()}"

    def package_version(self, distribution: str) -> str | None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(distribution)
        except PackageNotFoundError:
            return None

    def nvrtc(self) -> Nvrtc:
        from fuser.runtime.kernels import nvrtc

        return Nvrtc(nvrtc.version(), nvrtc.library_path(), nvrtc.supported_archs())

    def driver(self) -> Driver:
        from fuser.runtime import driver

        version = driver.driver_version()
        if version == (0, 0):
            raise NoDeviceError("not installed: there is no libcuda.so.1")
        try:
            gpus = tuple(_gpu(index) for index in range(int(driver.call("cuDeviceGetCount"))))
        except (LaunchError, ImportError) as error:
            return Driver(version, (), _one_line(error))
        return Driver(version, gpus)


def _gpu(index: int) -> Gpu:
    from fuser.runtime import driver

    device = driver.call("cuDeviceGet", index)
    attributes = driver.bindings().CUdevice_attribute

    def number(name: str) -> int:
        return int(driver.call("cuDeviceGetAttribute", getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    return Gpu(
        name=driver.call("cuDeviceGetName", 128, device).split(b"\0")[0].decode(),
        compute_capability=(number("COMPUTE_CAPABILITY_MAJOR"), number("COMPUTE_CAPABILITY_MINOR")),
        sm_count=number("MULTIPROCESSOR_COUNT"),
        memory=int(driver.call("cuDeviceTotalMem", device)),
    )


def render_probe(known: DeviceInfo, probed: DeviceInfo) -> str:
    """Rates and latencies that planning takes by default beside those that were measured."""
    from operator import attrgetter

    from fuser.runtime.probe import MEASURED

    lines = [f"{known.name}, {known.arch}", f"  {'':30s}{'known':>10s}{'measured':>10s}"]
    for name in MEASURED:
        before, after = (float(attrgetter(name)(device)) for device in (known, probed))
        lines.append(f"  {name:30s}{before:10.1f}{after:10.1f}" + (f"{after / before:8.2f}x" if before else ""))
    return "\n".join(lines)


def _probe_gpu() -> int:
    from fuser.runtime.devices.cuda_device import CudaDevice
    from fuser.runtime.devices.cuda_device_info import reported_info
    from fuser.runtime.probe import GpuBench, probe
    from fuser.runtime.probed_devices import keep_probed

    try:
        device = CudaDevice(0)
        bench = GpuBench(device)
    except (ImportError, NoDeviceError, LaunchError) as error:
        print(f"nothing to measure: {_one_line(error)}", file=sys.stderr)
        return 1
    known = reported_info(0)
    try:
        probed = probe(known, bench)
    finally:
        bench.release()
    print(render_probe(known, probed))
    kept = keep_probed(known, probed)
    print("kept; FUSER_MACHINE=probed plans with them" if kept else "not kept: the disk cache is off")
    return 0


def main(arguments: list[str], machine: Machine | None = None) -> int:
    """Print the report, or with `--probe` what was measured on the GPU. Returns 0 if the project can compile and simulate here,
    or if there was a GPU to measure, 1 if not, 2 for misuse."""
    if arguments == ["--probe"]:
        return _probe_gpu()
    if arguments:
        print(
            "usage: fuser doctor             what this machine has, and what is missing\n"
            "       fuser doctor --probe     measure the GPU's rates and latencies, and keep them for FUSER_MACHINE=probed",
            file=sys.stderr,
        )
        return 0 if arguments in (["-h"], ["--help"]) else 2
    findings = inspect_machine(ThisMachine() if machine is None else machine)
    print(render(findings))
    return 0 if can_compile_and_simulate(findings) else 1
