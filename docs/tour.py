"""A tour: one fusion through every stage of the compiler, by the functions that `execute` calls.

    python docs/tour.py

The order is that of the stage table in docs/ARCHITECTURE.md. At the end the same fusion goes the short way, `fd.execute`, and
`fd.explain` shows that it took the same steps.
"""

from __future__ import annotations

import numpy as np

from fuser import FusionDefinition
from fuser.codegen.generate import generate_cuda
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import segments_text
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.recorder import KeepingRecorder, PassObserver
from fuser.compiler.stage_texts import schedule_text
from fuser.host_ir.build import build_host_program
from fuser.ir.fact_collection import collect_facts
from fuser.ir.fusion.print_fusion import definition_text
from fuser.lowering.pipeline import lower_fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.devices.device import get_device
from fuser.schedule.print_params import params_text
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.segmentation.segmentation import segment_fusion


def show(title: str, text: object) -> None:
    """A stop of the tour."""
    print(f"\n{'-' * 100}\n{title}\n\n{str(text).rstrip()}")


recorder = KeepingRecorder()


def show_changes(number: str, family: str, before: str) -> None:
    """Every recorded stage of a family of passes; one that changed nothing is named only."""
    for name, text in recorder.stages.items():
        if name.startswith(family):
            show(f"{number} {name}: after a pass", text if text != before else "(unchanged)")
            before = text


# The simulator is a device like any other: it runs the kernels of this tour, and no GPU is needed.
device = get_device("simulator")
x_array = np.random.default_rng(0).standard_normal((4, 512)).astype(np.float32)

# 1. The definition. A fusion is immutable from here on; each of its expressions knows its line in this file.
with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, -1], contiguity=True)
    e = fd.ops.exp(x - fd.ops.max(x, dim=1, keepdim=True))
    fd.add_output(e / fd.ops.sum(e, dim=1, keepdim=True))
assert fd.fusion is not None
fusion = fd.fusion.ir_fusion
show("1. fusion.py: the fusion, softmax of rows. It prints as Python that rebuilds it", definition_text(fusion))

# 2. The inputs: checked against the definition, and from here on only what they look like matters.
bound = bind_inputs(fusion, [x_array])
show("2. the inputs as the planning stages see them", "\n".join(f"{n}: {t}" for n, t in bound.tensors.items()))

# 3. Rewrites of the whole fusion.
optimized = optimize_fusion(fusion, recorder.stage)
show_changes("3.", "fusion.", definition_text(fusion))

# 4. Segments: what one scheduler accepts becomes one kernel. Softmax is one segment of the reduction scheduler.
segmented = segment_fusion(optimized)
show("4. segments.py: the segments, and why other schedulers refused", segments_text(segmented))
(segment,) = segmented.segments

# 5. Params: the scheduler looks at sizes and strides and chooses what will change the text of the kernel.
params = segment.scheduler.propose(segment.fusion, SegmentInputs(bound.tensors, bound.evaluate), device.info)
assert not isinstance(params, Refused)
show("5. params.py: the scheduler's choice for these sizes on this device", params_text(params))

# 6. The schedule, and the facts about the inputs that it relies on. They are checked again at every launch.
schedule = segment.scheduler.apply(segment.fusion, params)
facts = collect_facts(schedule, bound.tensors, bound.evaluate)
show("6. schedule.py: verbs, the loops that follow from them, and facts", schedule_text(schedule, facts))

# 7. Lowering, pass by pass: loops and indices first, collectives expanded into shuffles and shared memory, then barriers.
kernel = lower_fusion(schedule, facts, observer=PassObserver(recorder, ""))
show_changes("7.", "kernel.", "")

# 8. CUDA text, which includes nothing.
source = generate_cuda(kernel)
show("8. kernel.cu: the text that NVRTC gets", source.text)

# 9. The compiled kernel. On a GPU NVRTC adds a cubin; the simulator runs the kernel IR itself.
compiled = KernelCompiler(device).compile(schedule, [x_array])
assert compiled.source == source.text
show("9. the compiled kernel's parameters", "\n".join(map(str, compiled.parameters)))

# 10. The host program: memory and launches.
program = build_host_program(segmented, [compiled])
show("10. host.py: what execute runs, and how its kernel is launched", program.explain())

# 11. The result, and proof that it is one.
(result,) = program.run([x_array], device=device)
wide = np.exp(x_array.astype(np.float64) - x_array.max(axis=1, keepdims=True))
expected = wide / wide.sum(axis=1, keepdims=True)
assert np.abs(result - expected).max() < 1e-6
show("11. the result, first columns", result[:, :4])

# The short way takes the same steps. KernelExecutor, FusionExecutorCache and `explain` all call the functions above.
(short,) = fd.execute([x_array], device="simulator")
assert np.array_equal(short, result)
stages = fd.fec.explain([x_array], device="simulator").stages
assert stages["kernel.cu"] == source.text
assert all(stages[name] == text for name, text in recorder.stages.items())
show("fd.explain(inputs) has all of it", "\n".join(stages))
