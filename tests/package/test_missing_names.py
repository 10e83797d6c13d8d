"""Names that modules and objects lack, calls of what is no function: class, words, and the user's line alone."""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
import pytest

from fuser import (
    Allocate,
    DataType,
    FusionDefinition,
    HostProgram,
    KernelCompiler,
    KernelExecutor,
    LaunchKernel,
    RtcKernel,
    extent,
)
from fuser.errors import (
    DefinitionAttributeError,
    DefinitionImportError,
    DefinitionKeyError,
    DefinitionTypeError,
    FuserError,
)

X = np.arange(6, dtype=np.float32)


@cache
def kernel() -> Any:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True)
        fd.add_output(x * x)
    return KernelCompiler().compile(fd, [X])


@cache
def program() -> Any:
    launch = LaunchKernel(kernel(), ("x", "y"))
    return HostProgram(("x",), ("y",), (Allocate("y", [extent("x", 0)], DataType.Float), launch))


@cache
def drawn() -> Any:
    """A tensor of fuser's own, as there is none among the inputs."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.iota(4))
    return fd.execute([], device="simulator")[0]


def executed() -> Any:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1], True) + 1.0)
    fd.execute([X])
    return fd


def explained() -> Any:
    return executed().explain([X], file=False)


class Traced(FusionDefinition, AbstractContextManager[Any]):
    """A subclass that has an abstract class for a base."""


def entered(definition: Any) -> None:
    with definition as fd:
        fd.define_tensor([-1])


CLASS: Any = FusionDefinition
COMPILER: Any = KernelCompiler()
RAW: Any = RtcKernel('extern "C" __global__ void k() {}', "k")

LAUNCHED = (
    "; a host program launches it: HostProgram(inputs, outputs, (Allocate(...), LaunchKernel(kernel, slots))).run(arrays); "
    "fd.execute(arrays) does all of it for a definition"
)
RUN = "; program.run([x, y]) runs it, on a list of all inputs"
COMPILES = "; KernelCompiler().compile(fd, [x, y]) makes a kernel, which a HostProgram launches"
RAW_RUN = (
    "; after raw.compile(), raw.run(args, LaunchParams(...)) launches it on a GPU, and LaunchKernel(raw, slots, "
    "LaunchParams(...)) in a HostProgram"
)
KERNEL = (
    "; fd.explain(inputs, file=False).stage('kernel.cu') is the text of its kernels, KernelCompiler().compile(fd, inputs) "
    "makes one"
)
NUMBERS = "; its numbers are x.numpy(); torch.from_dlpack(x) and cupy.from_dlpack(x) read them where they are"

OBJECTS: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: kernel()(X), "", f"this CompiledKernel is no function{LAUNCHED}"),
    (lambda: kernel().run([X]), "run", f"this CompiledKernel has no attribute 'run'{LAUNCHED}"),
    (lambda: kernel().sources, "sources", "this CompiledKernel has no attribute 'sources'; did you mean source?"),
    (
        lambda: kernel().ptx,
        "ptx",
        "this CompiledKernel has no attribute 'ptx'; source is its CUDA text, cubin its binary",
    ),
    (lambda: kernel().xyzzy, "xyzzy", "this CompiledKernel has no attribute 'xyzzy'"),
    (lambda: program()(X), "", f"this HostProgram is no function{RUN}"),
    (lambda: program()(X, device="simulator"), "", f"this HostProgram is no function{RUN}"),
    (lambda: program().execute([X]), "execute", f"this HostProgram has no attribute 'execute'{RUN}"),
    (
        lambda: program().save("p"),
        "save",
        "this HostProgram has no attribute 'save'; fuser.save(program, path) writes it to a file",
    ),
    (
        lambda: program()["x"],
        "",
        "this HostProgram has no items; its parts are program.inputs, .outputs, .instructions and .kernels",
    ),
    (lambda: program().runn([X]), "runn", "this HostProgram has no attribute 'runn'; did you mean run?"),
    (lambda: COMPILER(X), "", f"this KernelCompiler is no function{COMPILES}"),
    (lambda: RAW(X), "", f"this RtcKernel is no function{RAW_RUN}"),
    (lambda: RAW.launch(X), "launch", f"this RtcKernel has no attribute 'launch'{RAW_RUN}"),
    (lambda: drawn()[0], "", f"this DeviceTensor has no items{NUMBERS}"),
    (
        lambda: explained()["kernel.cu"],
        "",
        "this Explanation has no items; explanation.stage('kernel.cu') is the text of a stage, and explanation.stages has "
        "all by name",
    ),
    (
        lambda: executed().fec.run([X]),
        "run",
        "this FusionExecutorCache has no attribute 'run'; fd.execute([x, y]) runs a definition, fec.execute([x, y]) the "
        "fusion of a cache",
    ),
    (
        lambda: KernelExecutor().execute([X]),  # type: ignore[attr-defined]
        "execute",
        "this KernelExecutor has no attribute 'execute'; fd.manual_execute([x, y]) runs a scheduled definition, "
        "ke.run([x, y]) what an executor has compiled",
    ),
    (lambda: drawn().cpu(), "cpu", f"this DeviceTensor has no attribute 'cpu'{NUMBERS}"),
    *(
        (mistake, "", f"this DeviceTensor has no operators; it is memory and no value of a fusion: {NUMBERS[2:]}")
        for mistake in (lambda: drawn() + 1, lambda: 1 - drawn(), lambda: -drawn(), lambda: drawn() > 0)
    ),
    (lambda: executed().fusion.kernel, "kernel", f"this Fusion has no attribute 'kernel'{KERNEL}"),
    (
        lambda: executed().fusion.execute([X]),
        "execute",
        "this Fusion has no attribute 'execute'; fd.execute([x, y]) runs it, fd being its FusionDefinition",
    ),
    (lambda: executed().fusion.output(), "output", "this Fusion has no attribute 'output'; did you mean outputs?"),
    (
        lambda: executed().fusion[0],
        "",
        "this Fusion has no items; fusion.inputs() and fusion.outputs() are lists",
    ),
    (lambda: entered(FusionDefinition), "", "FusionDefinition is a class: write `with FusionDefinition() as fd:`"),
    (lambda: entered(Traced), "", "Traced is a class: write `with Traced() as fd:`"),
    (
        lambda: CLASS.define_tensor([2]),
        "",
        "FusionDefinition.define_tensor() was called on the class: it is a method of a FusionDefinition, got list[int] in "
        "its place",
    ),
    (
        lambda: CLASS.validate_definition(),
        "",
        "FusionDefinition.validate_definition() was called on the class: it is a method of a FusionDefinition, and there is "
        "none",
    ),
]


@pytest.mark.parametrize(("mistake", "name", "text"), OBJECTS, ids=range(len(OBJECTS)))
def test_objects(mistake: Callable[[], Any], name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    with pytest.raises(FuserError) as caught:
        mistake()
    assert caught.value.message == text
    if name:
        assert isinstance(caught.value, DefinitionAttributeError)
        assert caught.value.name == name
    else:
        assert isinstance(caught.value, DefinitionTypeError)
    check_place(caught.value)


def check_place(error: FuserError) -> None:
    assert error.location is not None
    assert error.location.filename == __file__
    assert {frame.filename for frame in traceback.extract_tb(error.__traceback__)} == {__file__}


def test_kernels_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    (name,) = program().kernels
    asked: Any = program().kernels
    for key in (0, "k"):
        with pytest.raises(KeyError) as caught:
            asked[key]
        assert isinstance(caught.value, DefinitionKeyError)
        assert caught.value.message == f"no kernel of this program is called {key!r}; there are {name!r}"
        check_place(caught.value)
    with pytest.raises(KeyError, match="; there are none"):
        HostProgram(("x",), ("x",), ()).kernels["k"]
    assert program().kernels == {name: kernel()}
    assert type(pickle.loads(pickle.dumps(program().kernels))) is dict


def test_what_python_looks_for_is_missing_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    for value in (kernel(), program(), KernelCompiler(), RAW, drawn()):
        assert not hasattr(value, "__len__")
        assert not hasattr(value, "_repr_html_")
        assert not hasattr(value, "xyzzy")
    again = pickle.loads(pickle.dumps(program()))
    assert again.kernels.keys() == program().kernels.keys()


def import_softmaxx() -> None:
    from fuser.ops import softmaxx  # type: ignore[attr-defined] # noqa: F401


def import_multiply() -> None:
    from fuser.ops import multiply  # type: ignore[attr-defined] # noqa: F401


def import_two() -> None:
    from fuser.ops import exp, expp  # type: ignore[attr-defined] # noqa: F401


def import_definition() -> None:
    from fuser import FusionDefintion  # type: ignore[attr-defined] # noqa: F401


def import_verb() -> None:
    from fuser.schedule import inline_most  # type: ignore[attr-defined] # noqa: F401


def import_error() -> None:
    from fuser.errors import InputErr  # type: ignore[attr-defined] # noqa: F401


def import_no_error() -> None:
    from fuser.errors import Typo  # type: ignore[attr-defined] # noqa: F401


def import_from_folder() -> None:
    from fuser.runtime import RtcKernel  # type: ignore[attr-defined] # noqa: F401


def import_like_from_folder() -> None:
    from fuser.frontend import FusionDefintion  # type: ignore[attr-defined] # noqa: F401


def import_nothing_from_folder() -> None:
    from fuser.host_ir import xyzzy  # type: ignore[attr-defined] # noqa: F401


def import_op() -> None:
    from fuser import exp  # type: ignore[attr-defined] # noqa: F401


IMPORTS: list[tuple[Callable[[], None], str, str]] = [
    (
        import_softmaxx,
        "softmaxx",
        "there is no op 'softmaxx'; did you mean softmax; it is written with other ops:\n"
        "    e = fd.ops.exp(x - fd.ops.max(x, -1, True))\n    y = e / fd.ops.sum(e, -1, True)",
    ),
    (import_multiply, "multiply", "there is no op 'multiply'; write fd.ops.mul(x, y)"),
    (import_two, "expp", "there is no op 'expp'; did you mean exp or exp2?"),
    (
        import_definition,
        "FusionDefintion",
        "module 'fuser' has no attribute 'FusionDefintion'; did you mean fuser.FusionDefinition?",
    ),
    (
        import_verb,
        "inline_most",
        "this folder has the schedulers and no 'inline_most'; scheduling functions are fd.sched.inline_most, or those of "
        "`from fuser import schedule`",
    ),
    (import_error, "InputErr", "there is no error 'InputErr'; did you mean InputError?"),
    (
        import_no_error,
        "Typo",
        "there is no error 'Typo'; each is a FuserError, and one of DefinitionError, InputError, SchedulingError, "
        "CompilationError, LaunchError, InternalError",
    ),
    (
        import_from_folder,
        "RtcKernel",
        "module 'fuser.runtime' has no attribute 'RtcKernel'; write `from fuser import RtcKernel`",
    ),
    (
        import_like_from_folder,
        "FusionDefintion",
        "module 'fuser.frontend' has no attribute 'FusionDefintion'; write `from fuser import FusionDefinition`",
    ),
    (import_nothing_from_folder, "xyzzy", "module 'fuser.host_ir' has no attribute 'xyzzy'"),
    (
        import_op,
        "exp",
        "module 'fuser' has no attribute 'exp': ops belong to a definition, fd.ops.exp, or from fuser.ops import exp",
    ),
]


@pytest.mark.parametrize(("statement", "name", "text"), IMPORTS, ids=[name for _, name, _ in IMPORTS])
def test_imports(statement: Callable[[], None], name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    with pytest.raises(ImportError) as caught:
        statement()
    assert isinstance(caught.value, DefinitionImportError)
    assert (caught.value.message, caught.value.name) == (text, name)
    check_place(caught.value)


def test_names_that_are_asked_for_otherwise_are_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    import fuser

    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)

    for module in (fuser, fuser.ops, fuser.schedule, sys.modules[FuserError.__module__]):
        assert not hasattr(module, "xyzzy")
        with pytest.raises(DefinitionAttributeError) as caught:
            module.xyzzy
        check_place(caught.value)
