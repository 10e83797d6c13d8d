"""Random fusions under random schedules on a GPU: the cases of tests/fuzzing/test_random_schedules.py, many more of them.

    RANDOM_SCHEDULES=5000 RANDOM_SCHEDULES_FIRST=0 python3 -m pytest -s tests/gpu/test_random_schedules.py

Kernels are compiled in batches, one program each, by a pool of threads, while this one lowers the next batch and runs the
last ones. Each test takes a part of the cases, so that several processes share them: `pytest -n 16`.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.errors import FuserError, LaunchError, SchedulingError
from fuser.ir.kernel.kernel import Kernel
from fuser.lowering.pipeline import lower_fusion
from fuser.runtime.devices.device import Device, get_device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel, content_hash
from fuser.runtime.kernels.nvrtc import CompileResult, compile_to_cubin
from tests.fuzzing.random_schedules import RandomCase, features, generate, one_program, share_report
from tests.judging import oracle
from tests.judging.harness import assert_same, run_on

CASES = int(os.environ.get("RANDOM_SCHEDULES", "5000"))
FIRST = int(os.environ.get("RANDOM_SCHEDULES_FIRST", "0"))
BATCH = 20
PER_TEST = 250
# The processes of a run share its cores.
THREADS = max(1, min(16, os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
OPTIONS = ("-DFUSER_MAX_THREADS=1024",)
LARGEST_BLOCK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Accepted cases with their kernels and texts, and the program they are compiled in."""

    cases: list[tuple[RandomCase, Kernel]]
    texts: dict[str, str]
    result: Future[CompileResult]


def compiled(kernel: Kernel, case: RandomCase, text: str, result: CompileResult, name: str) -> CompiledKernel:
    """A kernel of a batch: all of a batch have one binary."""
    return CompiledKernel(
        source=text,
        entry=result.lowered[name],
        arch=result.arch,
        cubin=result.cubin,
        kernel_ir=kernel,
        parameters=kernel.parameters,
        plan=kernel.plan,
        facts=case.facts,
        resources=result.resources.get(name),
        max_block_size=LARGEST_BLOCK,
        register_limit=64,
        options=(),
        nvrtc_version=result.version,
        content_hash=content_hash(text, OPTIONS, result.arch, result.version, kernel.name),
    )


def run_batch(device: Device, batch: Batch, failures: list[str], refusals: Counter[str]) -> None:
    """Run the cases of a batch and compare them with the oracle; a launch that the device cannot hold is a refusal."""
    result = batch.result.result()
    _, entries = one_program(batch.texts)
    for case, kernel in batch.cases:
        binary = compiled(kernel, case, batch.texts[kernel.name], result, entries[kernel.name])
        expected = oracle.evaluate(case.fusion, case.inputs)
        try:
            for name, value in run_on(device, binary, case.fusion, case.inputs).items():
                assert_same(value, expected[name], name)
        except (AssertionError, FuserError) as error:
            if isinstance(error, LaunchError) and "bytes of shared memory" in str(error):
                refusals["more shared memory than a block can have"] += 1
                continue
            failures.append(f"seed {case.seed}: {error}\n{case.schedule}")


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, PER_TEST))
def test_random_schedules_on_the_gpu(first: int) -> None:
    end = min(first + PER_TEST, FIRST + CASES)
    device = get_device("cuda")
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    accepted = 0
    failures: list[str] = []
    waiting: deque[Batch] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(first, end, BATCH):
            cases: list[tuple[RandomCase, Kernel]] = []
            texts: dict[str, str] = {}
            for seed in range(start, min(start + BATCH, end)):
                try:
                    case = generate(seed)
                    kernel = lower_fusion(case.schedule, case.facts, name=f"case_{seed}")
                except SchedulingError as error:
                    refusals[str(error).split("\n")[0]] += 1
                    continue
                counts.update(features(case, kernel))
                cases.append((case, kernel))
                texts[kernel.name] = generate_cuda(kernel).text
            if cases:
                text, entries = one_program(texts)
                result = pool.submit(compile_to_cubin, text, list(entries.values()), device.info.arch, OPTIONS)
                waiting.append(Batch(cases, texts, result))
                accepted += len(cases)
            # Never more programs in flight than threads to compile them twice over; nothing waits that is done.
            while waiting and (waiting[0].result.done() or len(waiting) > 2 * THREADS):
                run_batch(device, waiting.popleft(), failures, refusals)
        while waiting:
            run_batch(device, waiting.popleft(), failures, refusals)
    print("\n" + share_report(counts, accepted, end - first, refusals))
    assert not failures, f"{len(failures)} of {accepted} cases are wrong\n\n" + "\n\n".join(failures[:5])
    # What they hold is asserted of a fixed number of cases, without a GPU.
    assert accepted, refusals
