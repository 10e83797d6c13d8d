"""The names that the package offers."""

import importlib
import re
import sys
from pathlib import Path

import pytest

import fuser
from fuser import DataType, SchedulerType

# Made by other parts of the project; each has tests of its own.
EXECUTION = {"FusionExecutorCache", "KernelExecutor"}


@pytest.mark.parametrize("name", sorted(set(fuser.EXPORTS) - EXECUTION))
def test_every_name_can_be_loaded(name: str) -> None:
    assert getattr(fuser, name) is not None
    assert name in dir(fuser)


def test_unknown_names():
    with pytest.raises(AttributeError, match="module 'fuser' has no attribute 'nothing'"):
        fuser.nothing  # type: ignore[attr-defined]
    assert not hasattr(fuser, "nothing")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("float32", "; did you mean fuser.DataType.Float?"),
        ("bfloat16", "; did you mean fuser.DataType.BFloat16?"),
        ("exp", ": ops belong to a definition, fd.ops.exp"),
        ("concatenate", "; write fd.ops.cat(tensors, dim)"),
        ("Softmax", "; it is written with other ops:\n    e = "),
        ("Launch", "; fuser.LaunchKernel runs a kernel"),
        ("Half", "; did you mean fuser.DataType.Half?"),
        ("execute", "; fd.execute([x, y]) runs a definition, program.run([x, y]) a host program"),
        ("autotune", "; fd.execute(inputs, tune=True) measures candidates on a GPU"),
        ("seed", "; fuser.manual_seed(seed) seeds the generator of random numbers"),
        ("nn", "; ops belong to a definition: fd.ops"),
        ("jit", "; a fusion is defined in `with fuser.FusionDefinition() as fd:` and run by fd(x)"),
        ("tensor", "; fd.define_tensor(shape) defines an input; its values are an array of NumPy, torch, CuPy or JAX"),
        ("FusionDefinitions", "; did you mean fuser.FusionDefinition?"),
    ],
)
def test_unknown_names_are_told_what_they_may_mean(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"module 'fuser' has no attribute {name!r}{advice}")):
        getattr(fuser, name)


def test_submodules():
    assert fuser.ops.add.__name__ == "add"
    from fuser import ops

    assert ops is fuser.ops


def test_names_for_several_gpus_can_be_imported_and_say_that_there_is_one():
    from fuser import execute_with_dtensors, multidevice

    assert not isinstance(fuser.FusionDefinition(), multidevice.DeviceMesh)
    with pytest.raises(NotImplementedError, match=r"DeviceMesh\(\) is not supported yet: fusions run on one GPU"):
        multidevice.DeviceMesh([0, 1])
    with pytest.raises(NotImplementedError, match=r"execute_with_dtensors\(\) is not supported yet") as caught:
        execute_with_dtensors(fuser.FusionDefinition(), [])
    assert "execute_with_dtensors(fuser.FusionDefinition(), [])" in str(caught.value)


def test_star_import():
    names: dict[str, object] = {}
    exec("from fuser import *", names)
    assert set(names) - {"__builtins__"} == {*fuser.EXPORTS, *fuser.SUBMODULES}


def test_scheduling_functions_keep_their_name():
    """The folder of schedulers is called `schedule` too."""
    importlib.import_module("fuser.schedule.segmentation.registry")
    from fuser import schedule

    assert schedule is fuser.schedule
    assert schedule is fuser.FusionDefinition().sched
    assert schedule.can_schedule.__name__ == "can_schedule"


@pytest.mark.parametrize(
    "name",
    [
        "DataType",
        "ParallelType",
        "MemoryType",
        "LoadStoreOpType",
        "CacheOp",
        "IdMappingMode",
        "SchedulerType",
        "CommunicatorBackend",
        "MatmulTilingStrategy",
        "MatmulBufferingLoopLevel",
        "MatmulCircularBufferingStrategy",
        "MatmulTileRasterizationOrder",
        "MmaMacroArch",
    ],
)
def test_enums(name: str) -> None:
    enum = getattr(fuser, name)
    entries = getattr(enum, "__entries")
    for member in enum:
        assert enum.__members__[member.name] is member
        assert entries[member.name][0] is member
        assert isinstance(entries[member.name][1], str)
        assert hash(member) == hash(enum[member.name])


def test_parameters():
    a, b = fuser.PointwiseParams(), fuser.PointwiseParams()
    assert a == b
    assert a.hash() == b.hash() == hash(a)
    a.vectorization_factor = 4
    assert a != b
    assert a.hash() != b.hash()
    assert a.scheduler_type is SchedulerType.pointwise
    with pytest.raises(AttributeError):
        a.scheduler_type = SchedulerType.reduction  # type: ignore[misc]
    assert "vectorization_factor: 4" in str(a)
    assert fuser.ReductionParams().scheduler_type is SchedulerType.reduction
    assert fuser.HeuristicParams().scheduler_type is SchedulerType.none
    a.lparams.bdimx = 128
    assert (a.lparams.bdimx, a.lparams.gdimy) == (128, 1)
    a.cparams.maxrregcount = 64
    assert a.cparams.maxrregcount == 64


def test_matmul_parameters():
    p = fuser.MatmulParams()
    p.tile_sizes = fuser.MatMulTileOptions(fuser.GemmTile(128, 256, 64), fuser.GemmTile(64, 256, 64))
    p.circular_buffer_options = fuser.CircularBufferOptions(smem_write=True, smem_read=False, stage=4, prefetch_gap=2)
    p.supported_vec_size = fuser.SupportedVectorization(8, 8, 4)
    p.cluster_dims = fuser.ClusterDims(2, 1)
    p.mma_macro = fuser.MmaMacroEncode(fuser.MmaMacroArch.hopper, 64, 256, 16).mma_macro()
    assert p.mma_macro == fuser.MmaMacro(fuser.MmaMacroArch.hopper, 64, 256, 16)
    assert p.circular_buffer_options.smem_circular_buffer_stage == 4
    assert p.tile_sizes.cta_tile.n == 256
    assert p != fuser.MatmulParams()


def test_compile_params_are_keyword_only():
    assert fuser.CompileParams(index_type=DataType.Int32).index_type is DataType.Int32
    with pytest.raises(TypeError):
        fuser.CompileParams(DataType.Int32)  # type: ignore[call-arg]


def test_names_that_do_not_exist_yet_are_listed():
    """README.md, under "nvFuser's API": whoever adds one of them takes it off the list."""
    text = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(\w+)`", text.split("Missing are")[1].split("`swizzle`")[0])
    assert len(listed) == 12
    assert not [name for name in listed if hasattr(fuser, name) or hasattr(fuser.schedule, name)]


def test_ops_are_a_module_of_the_package() -> None:
    from fuser import ops
    from fuser.ops import exp

    assert sys.modules["fuser.ops"] is ops is fuser.ops
    assert exp is ops.exp


def test_dir_shows_what_is_exported() -> None:
    assert [name for name in dir(fuser) if not name.startswith("__")] == [
        n for n in fuser.__all__ if n != "__version__"
    ]
