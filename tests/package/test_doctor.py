"""The doctor on machines that are made up, and on this one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from fuser import doctor
from fuser.doctor import Driver, Gpu, Nvrtc
from fuser.errors import InputValueError, NoDeviceError
from fuser.ir.device_info import DeviceInfo
from tests.runtime.fake_driver import install

NVRTC_12 = Nvrtc((12, 9), "/usr/lib/libnvrtc.so.12", (75, 80, 90, 100, 120))
NVRTC_13 = Nvrtc((13, 0), "/usr/lib/libnvrtc.so.13", (75, 80, 90, 100, 120))
H200 = Gpu("NVIDIA H200", (9, 0), 132, 143771 * 2**20)
PACKAGES = {"numpy": "2.4.6", "ml_dtypes": "0.6.0", "sympy": "1.14.0", "cuda-bindings": "13.4.4"}
NO_DRIVER = RuntimeError("libcuda.so.1 not found")


@dataclass(frozen=True)
class FakeMachine:
    """A machine without driver, GPU, torch; tests replace what they are about. An exception as a value is raised."""

    found_nvrtc: Nvrtc | Exception = NVRTC_12
    found_driver: Driver | Exception = NO_DRIVER
    packages: Mapping[str, str] = field(default_factory=lambda: PACKAGES)
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> Mapping[str, str]:
        return self.variables

    def python(self) -> str:
        return "3.11.7 on Linux x86_64"

    def package_version(self, distribution: str) -> str | None:
        return self.packages.get(distribution)

    def nvrtc(self) -> Nvrtc:
        if isinstance(self.found_nvrtc, Exception):
            raise self.found_nvrtc
        return self.found_nvrtc

    def driver(self) -> Driver:
        if isinstance(self.found_driver, Exception):
            raise self.found_driver
        return self.found_driver


def run(machine: FakeMachine, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = doctor.main([], machine)
    return code, capsys.readouterr().out


def test_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(), capsys)
    assert code == 0
    assert text == (
        "required\n"
        "  ok      python         3.11.7 on Linux x86_64\n"
        "  ok      numpy          2.4.6\n"
        "  ok      ml_dtypes      0.6.0\n"
        "  ok      NVRTC          12.9, /usr/lib/libnvrtc.so.12\n"
        "\n"
        "GPU\n"
        "  ok      cuda-bindings  13.4.4\n"
        "  -       driver         libcuda.so.1 not found\n"
        "                         -> to run on a GPU, install the NVIDIA driver; without one, fusions compile and run "
        "on the simulator\n"
        "\n"
        "optional\n"
        "  ok      sympy          1.14.0\n"
        "  -       torch          not installed\n"
        "                         -> for torch tensors as inputs and outputs: pip install torch\n"
        "  -       cupy           not installed\n"
        "                         -> for CuPy arrays as inputs and outputs: pip install cupy-cuda12x\n"
        "  -       jax            not installed\n"
        "                         -> for JAX arrays as inputs and outputs: pip install jax\n"
        "\n"
        "This machine can compile and simulate; it has no GPU to run on.\n"
    )


def test_gpu_and_frameworks(capsys: pytest.CaptureFixture[str]) -> None:
    packages = PACKAGES | {"torch": "2.11", "cupy-cuda13x": "14.2", "jax": "0.11.2"}
    code, text = run(FakeMachine(NVRTC_13, Driver((13, 0), (H200,)), packages), capsys)
    assert code == 0
    assert "  ok      cuda:0         NVIDIA H200, compute capability 9.0, 132 SMs, 140.4 GiB\n" in text
    assert "  ok      cupy           14.2 (cupy-cuda13x)\n" in text
    assert text.endswith("This machine can compile, simulate, and run on its GPU.\n")


@pytest.mark.parametrize("package", ["numpy", "ml_dtypes"])
def test_required_package_missing(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(packages={k: v for k, v in PACKAGES.items() if k != package}), capsys)
    assert code == 1
    assert f"-> pip install {package}\n" in text
    assert text.endswith(f"This machine cannot compile and simulate yet; see {package} above.\n")


def test_nvrtc_missing(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(RuntimeError("no libnvrtc\nanywhere")), capsys)
    assert code == 1
    assert "  MISSING NVRTC          cannot be loaded: no libnvrtc anywhere\n" in text
    assert "-> pip install nvidia-cuda-nvrtc-cu12, or point FUSER_NVRTC at a libnvrtc.so\n" in text


def test_nvrtc_newer_than_the_driver(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(NVRTC_13, Driver((12, 8), (H200,))), capsys)
    assert code == 0
    assert "NVRTC 13.0 makes binaries that this driver cannot load" in text
    assert "-> pip install nvidia-cuda-nvrtc-cu12 (and no newer one), or update the driver" in text
    assert "its GPU waits for an NVRTC that the driver can follow" in text


def test_bindings_missing(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(packages={k: v for k, v in PACKAGES.items() if k != "cuda-bindings"}), capsys)
    assert code == 0
    assert "-> pip install cuda-python\n" in text


def test_driver_that_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(found_driver=Driver((12, 8), (), "cuInit failed: CUDA_ERROR_NO_DEVICE (100)")), capsys)
    assert code == 0
    assert "  -       GPU            cuInit failed: CUDA_ERROR_NO_DEVICE (100)\n" in text


def test_driver_without_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(found_driver=Driver((12, 8), ())), capsys)
    assert code == 0
    assert "the driver finds no GPU" in text
    assert text.endswith("it has no GPU to run on.\n")


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((13, 0), "does not know sm_130: kernels are compiled to PTX of compute_120"),
        ((7, 0), "NVRTC 12.9 no longer compiles for sm_70"),
    ],
)
def test_gpu_that_nvrtc_does_not_know(
    capability: tuple[int, int], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = replace(H200, compute_capability=capability)
    _, text = run(FakeMachine(found_driver=Driver((13, 0), (gpu,))), capsys)
    assert expected in text


def test_options_in_force_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(variables={"FUSER_DUMP": "kernel.cu", "HOME": "/root"}), capsys)
    assert code == 0
    assert "  ok      options        FUSER_DUMP=kernel.cu\n" in text


def test_wrong_option(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(variables={"FUSER_DMUP": "1"}), capsys)
    assert code == 1
    assert (
        "  WRONG   options        Unknown option in the environment: FUSER_DMUP; did you mean FUSER_DUMP? known are"
        in text
    )


def test_a_wrong_option_is_not_taken_for_a_missing_library(capsys: pytest.CaptureFixture[str]) -> None:
    fault = InputValueError("Unknown option in the environment: FUSER_DMUP")
    code, text = run(FakeMachine(fault, variables={"FUSER_DMUP": "1"}), capsys)
    assert code == 1
    assert "MISSING NVRTC          not looked for: an option is wrong" in text
    assert "pip install nvidia-cuda-nvrtc-cu12" not in text


def test_other_nvrtc_than_expected(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(FakeMachine(variables={"FUSER_EXPECT_NVRTC": "13.0"}), capsys)
    assert code == 1
    assert "FUSER_EXPECT_NVRTC asks for NVRTC 13.0, loaded is 12.9" in text
    assert run(FakeMachine(NVRTC_13, variables={"FUSER_EXPECT_NVRTC": "13.0"}), capsys)[0] == 0


def test_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--fast"], FakeMachine()) == 2
    assert "usage: fuser doctor" in capsys.readouterr().err


def test_gpus_as_the_driver_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    found = doctor.ThisMachine().driver()
    assert found == Driver((13, 0), (Gpu("Fake H200", (9, 0), 132, 144 * 2**30),))


def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """The suite runs only where the project can compile, so the doctor has to say so."""
    assert doctor.main([]) == 0
    assert "This machine can compile" in capsys.readouterr().out


def test_a_probe_shows_what_was_known_beside_what_was_measured() -> None:
    known = DeviceInfo.preset("H200")
    text = doctor.render_probe(
        known, replace(known, latencies=replace(known.latencies, l2_ns=2 * known.latencies.l2_ns))
    )
    assert text.startswith("H200, sm_90a\n")
    assert re.search(r"latencies\.l2_ns +156\.0 +312\.0 +2\.00x", text)
    assert re.search(r"memory_bytes_per_ns +4275\.0 +4275\.0 +1\.00x", text)


def test_a_probe_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none(index: int) -> None:
        raise NoDeviceError("there is no GPU")

    monkeypatch.setattr("fuser.runtime.devices.cuda_device.CudaDevice", none)
    assert doctor.main(["--probe"]) == 1
    assert capsys.readouterr().err == "nothing to measure: there is no GPU\n"
