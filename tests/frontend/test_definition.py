import threading

import numpy as np
import pytest

import fuser
from fuser import DataType, Fusion, FusionDefinition, FusionGuard
from fuser.frontend.active_fusion import active_fusion
from tests.frontend.building import define, lines

D = DataType


def test_life_cycle():
    fd = FusionDefinition()
    assert fd.fusion is None
    assert repr(fd) == "FusionDefinition()"
    with fd as entered:
        assert entered is fd
        assert active_fusion() is fd.fusion
        x = fd.define_tensor([-1])
        fd.add_output(x)
    assert active_fusion() is None
    assert fd.validate_definition() == (True, None)
    assert not hasattr(fd, "fec")
    assert not hasattr(fd, "ke")
    assert x.ndim == 1
    assert str(x) == "tv0: Float[t0_size0]"


def test_reentering_a_finished_definition():
    fd = define(lambda fd: fd.define_tensor([2]))
    with pytest.raises(RuntimeError, match="has been defined already"):
        fd.__enter__()
    assert len(fd.fusion.outputs()) == 1


def test_exceptions_propagate_with_a_note():
    fd = FusionDefinition()
    tensors = []

    def leave():
        with fd:
            tensors.append(fd.define_tensor([2]))
            fd.ops.neg(tensors[0])
            1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        leave()
    (x,) = tensors
    assert "after 1 inputs and 1 exprs" in caught.value.__notes__[0]
    assert active_fusion() is None
    assert fd.validate_definition()[0] is False
    with pytest.raises(RuntimeError, match="left by an exception"):
        fuser.ops.neg(x)
    assert "tv0" in str(x)


def test_definitions_nest():
    with FusionDefinition() as outer:
        a = outer.define_tensor([2])
        with FusionDefinition() as inner:
            assert active_fusion() is inner.fusion
            inner.add_output(inner.define_tensor([3]))
            # Ops belong to the fusion of their operands, not to the active one.
            assert fuser.ops.neg(a).fusion is outer.fusion
        assert active_fusion() is outer.fusion
        outer.add_output(a)
    assert len(inner.fusion.vals()) == 1


def test_threads_define_apart():
    found = []
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([2]))
        thread = threading.Thread(target=lambda: found.append(active_fusion()))
        thread.start()
        thread.join()
    assert found == [None]


def test_free_attributes():
    fd = FusionDefinition()
    fd._selected_device = None
    fd.anything = 3
    assert (fd._selected_device, fd.anything) == (None, 3)
    with pytest.raises(AttributeError):
        fd.missing
    assert fd._fusion is None


def test_modules_of_a_definition():
    fd = FusionDefinition()
    assert fd.ops is fuser.ops


def test_validate_definition():
    assert FusionDefinition().validate_definition() == (
        False,
        "Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion.",
    )
    fd = define(lambda fd: None)
    assert fd.validate_definition() == (False, "Fusion is empty!")


@pytest.mark.parametrize("call", ["define_tensor", "define_scalar"])
def test_defining_outside_of_with(call):
    with pytest.raises(RuntimeError, match=rf"{call}\(\): call it inside"):
        getattr(FusionDefinition(), call)([2])
    with pytest.raises(RuntimeError, match="call it inside"):
        FusionDefinition().define_vector(2)


# --- outputs ---


def test_outputs_in_call_order_and_twice():
    def body(fd):
        x = fd.define_tensor([2])
        y = fd.ops.neg(x)
        for out in (y, x, y):
            fd.add_output(out)

    fd = define(body)
    assert [str(o.node.name) for o in fd.fusion.outputs()] == ["t1", "t0", "t1"]


def test_aliases():
    def body(fd):
        x, y, z = (fd.define_tensor([-1]) for _ in range(3))
        total = fd.ops.add(x, y)
        fd.add_output(total, x)
        fd.add_output(x, alias_input=y)
        fd.add_output(total, z)

    fd = define(body)
    assert lines(fd)[-3:] == ["fd.add_output(tv3, tv0)", "fd.add_output(tv4, tv1)", "fd.add_output(tv5, tv2)"]
    outputs = fd.fusion.ir_fusion.outputs
    assert all(o.hidden for o in outputs)
    # An input written over another one is a copy of its own; so is a value written over two.
    assert "tv4 = fd.ops.set(tv0)" in lines(fd)
    assert "tv5 = fd.ops.set(tv3)" in lines(fd)


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (lambda fd: (fd.define_scalar(),), RuntimeError, "takes tensors, got the scalar"),
        (lambda fd: (1.0,), TypeError, r"add_output\(\): incompatible function arguments"),
        (
            lambda fd: (fd.define_tensor([2]), fd.define_tensor([3])),
            RuntimeError,
            "Expected sizes to match in add_output: dim 0 of the output has extent 2, that of the input to update 3",
        ),
        (
            lambda fd: (fd.define_tensor([2]), fd.ops.neg(fd.define_tensor([2]))),
            RuntimeError,
            "alias_input must be a fusion input",
        ),
        (lambda fd: (fd.define_tensor([2]), fd.define_scalar()), RuntimeError, "takes tensors"),
        (lambda fd: (fd.define_tensor([2]), "x"), TypeError, "incompatible function arguments"),
        (
            lambda fd: (fd.define_tensor([2]), fd.define_tensor([2, 2])),
            RuntimeError,
            "rank 1 and cannot be written to an input of rank 2",
        ),
        (
            lambda fd: (fd.define_tensor([2]), fd.define_tensor([2], dtype=D.Half)),
            RuntimeError,
            "has dtype Float and cannot be written to an input of dtype Half",
        ),
    ],
)
def test_add_output_errors(arguments, kind, text):
    with FusionDefinition() as fd:
        values = arguments(fd)
        with pytest.raises(kind, match=text):
            fd.add_output(*values)


def test_outputs_of_another_fusion():
    with FusionDefinition() as first:
        x = first.define_tensor([2])
    with FusionDefinition() as second, pytest.raises(RuntimeError, match="belongs to another fusion"):
        second.add_output(x)


# --- calls that execute ---


def test_execute_without_a_definition():
    with pytest.raises(
        NotImplementedError,
        match=r"Fusion does not exist! Use `with FusionDefinition\(\) as fd: ...` to define a fusion\.",
    ):
        FusionDefinition().execute([])
    with pytest.raises(NotImplementedError, match="Fusion does not exist!"):
        FusionDefinition().manual_execute([])


def test_execute_an_empty_fusion():
    fd = define(lambda fd: None)
    with pytest.raises(NotImplementedError, match="Fusion is empty!"):
        fd.execute([])
    with pytest.raises(NotImplementedError, match="Fusion is empty!"):
        fd.manual_execute([])


def test_execute_inside_the_definition():
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([2]))
        with pytest.raises(RuntimeError, match="the definition is not complete"):
            fd.execute([np.ones(2, np.float32)])


def test_automatic_and_manual_execution_exclude_each_other():
    fd = define(lambda fd: fd.define_tensor([2]))
    fd.ke = object()
    with pytest.raises(
        AssertionError, match=r"KernelExecutor already exists! Use manual_execute\(\) to execute the fusion\."
    ):
        fd.execute([])
    fd = define(lambda fd: fd.define_tensor([2]))
    fusion = fd.fusion
    fd.fec = type("Cache", (), {"fusion": lambda self: fusion})()
    del fd._fusion
    assert fd.fusion is fusion
    assert "tv0" in repr(fd)
    with pytest.raises(
        AssertionError, match=r"FusionExecutorCache already exists! Use execute\(\) to execute the fusion\."
    ):
        fd.manual_execute([])


def test_last_repro_script_without_an_execution():
    with pytest.raises(AssertionError, match=r"fd.last_repro_script\(\) cannot provide a repro because"):
        define(lambda fd: fd.define_tensor([2])).last_repro_script()


def test_execute_delegates():
    class Cache:
        def execute(self, inputs, **kwargs):
            return [inputs, kwargs]

    fd = define(lambda fd: fd.define_tensor([2]))
    fd.fec = Cache()
    x = np.ones(2, np.float32)
    inputs, kwargs = fd.execute([x, 2.5], device=1, save_repro_inputs=True, _enable_options=["fast_math"])
    assert inputs[0] is x
    assert kwargs == {
        "device": 1,
        "graph": False,
        "tune": None,
        "_enable_options": ["fast_math"],
        "_disable_options": None,
    }
    tensor, scalar = fd.fake_inputs
    assert (tensor.shape, tensor.stride, tensor.dtype, tensor.device) == ((2,), (1,), D.Float, "cpu")
    assert scalar == 2.5


def test_from_array():
    with FusionDefinition() as fd:
        x = fd.from_array(np.zeros((4, 1, 3), np.float16))
        y = fd.from_array(np.zeros((2, 3), np.int32).T, static_sizes=True)
        fd.add_output(x)
        fd.add_output(y)
    assert [d.extent.is_const for d in x.node.visible] == [False, True, False]
    assert x.dtype() is D.Half
    assert [d.extent.value for d in y.node.visible] == [3, 2]
    assert y.node.stride_order == (0, 1)
    with (
        FusionDefinition() as fd,
        pytest.raises(TypeError, match=r"dtype int8 are not supported: .* handed over as words"),
    ):
        fd.from_array(np.zeros(3, np.int8))
    with (
        FusionDefinition() as fd,
        pytest.raises(TypeError, match="dtype uint32 are not supported: there is none for that"),
    ):
        fd.from_array(np.zeros(3, np.uint32))


# --- Fusion and FusionGuard ---


def test_guard_nests_and_closes_once():
    first, second = Fusion(), Fusion()
    outer = FusionGuard(first)
    inner = FusionGuard(second)
    assert active_fusion() is second
    outer.close()
    assert active_fusion() is second
    inner.close()
    inner.close()
    assert active_fusion() is None


def test_guard_as_a_context_and_by_collection():
    fusion = Fusion()
    with FusionGuard(fusion) as guard:
        assert active_fusion() is fusion
        assert guard.fusion is fusion
    assert active_fusion() is None
    guard = FusionGuard(fusion)
    del guard
    assert active_fusion() is None
    with pytest.raises(TypeError, match="FusionGuard"):
        FusionGuard("x")


def test_module_level_definitions():
    fusion = Fusion()
    with FusionGuard(fusion):
        x = fuser.define_tensor([-1, 3], True, D.Half)
        c = fuser.define_scalar(D.Int)
        assert fusion.inputs() == []
        fusion.add_input(x)
        fusion.add_input(c)
        y = fuser.ops.mul(x, c)
        fusion.add_output(y)
        fusion.add_output(fuser.ops.cast(y, D.Half), x)
        for val, text in (
            (x, "is an input already"),
            (y, "is computed, it cannot be an input"),
            (fuser.define_scalar(2), "is a constant"),
        ):
            with pytest.raises(RuntimeError, match=text):
                fusion.add_input(val)
    assert fusion.inputs() == [x, c]
    assert fusion.outputs()[0] is y
    assert x in fusion.vals()
    assert "mul" in fusion.print_math()
    with pytest.raises(TypeError, match="add_input"):
        fusion.add_input(3)


def test_define_without_active_fusion():
    with pytest.raises(RuntimeError, match="no active fusion"):
        fuser.define_tensor([2])
    with pytest.raises(RuntimeError, match="no active fusion"):
        fuser.define_scalar()


def test_structural_equality_of_handles():
    def body(fd):
        x = fd.define_tensor([-1])
        return fd.ops.add(fd.ops.sin(x), 1.0)

    a, b = define(body).fusion, define(body).fusion
    assert a == b
    assert hash(a) == hash(b)
    assert a != define(lambda fd: fd.define_tensor([-1])).fusion
    assert a != 3


def test_leaves_that_are_no_inputs():
    def body(fd):
        return fd.ops.neg(fuser.define_tensor([2]))

    with pytest.raises(
        RuntimeError, match=r"an output needs tv0: Float\[2\], which is no input of the fusion"
    ) as caught:
        define(body)
    assert caught.value.location.filename == __file__


def test_print_math_shows_dead_code_on_request():
    def body(fd):
        x = fd.define_tensor([-1])
        fd.ops.sin(x)
        return fd.ops.cos(x)

    fusion = define(body).fusion
    assert "sin" not in fusion.print_math()
    assert "sin" in fusion.print_math(from_outputs_only=False)


def test_the_program_has_a_type() -> None:
    assert FusionDefinition.program.__annotations__["return"] == "HostProgram"
