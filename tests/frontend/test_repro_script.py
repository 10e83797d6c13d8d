import math

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType
from fuser.frontend.input_descriptors import FakeInput
from fuser.frontend.repro_script import repro_script
from tests.frontend.building import define

D = DataType


def definition():
    def body(fd):
        x = fd.define_tensor([-1, -1], True)
        return fd.ops.mul(x, fd.define_scalar())

    return define(body)


class Recorder:
    """Stands for the executor cache: keeps what it is asked to execute."""

    def __init__(self, fusion):
        self._fusion = fusion
        self.inputs = None

    def fusion(self):
        return self._fusion

    def execute(self, inputs, **kwargs):
        self.inputs = inputs
        return []


def run(script, monkeypatch):
    """The inputs that the script executes on."""
    seen = []
    from fuser import FusionDefinition

    monkeypatch.setattr(FusionDefinition, "execute", lambda self, inputs, **kwargs: seen.extend(inputs))
    exec(script, {})
    return seen


def test_without_inputs():
    fd = definition()
    script = fd.repro_script_for()
    assert repr(fd) in script
    assert "from fuser import FusionDefinition, DataType" in script
    assert script.endswith("with FusionDefinition() as fd:\n    nvfuser_fusion(fd)\n")
    assert script.startswith("# devices of the inputs: none\n")
    compile(script, "script", "exec")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 4), np.float32),
        np.zeros((4, 2), np.float32).T,
        np.zeros((4, 8), np.float16)[::2, ::3],
        np.zeros((2, 3), np.int32).T,
        np.zeros((3, 3), np.bool_)[:, :2],
        np.zeros((2, 2), ml_dtypes.bfloat16),
        np.zeros((2, 6), ml_dtypes.bfloat16)[:, ::2],
        np.broadcast_to(np.float32(1), (2, 3)),
        np.zeros((0, 3), np.float32),
        np.zeros((2, 2), np.complex64),
    ],
)
def test_numpy_inputs(array, monkeypatch):
    script = definition().repro_script_for([array, 0.1])
    made, scalar = run(script, monkeypatch)
    assert (made.shape, made.dtype) == (array.shape, array.dtype)
    assert made.strides == array.strides or array.size == 0
    assert scalar == 0.1
    assert "torch" not in script
    assert script.endswith("]\nfd.execute(inputs)\n")


def test_rank_0(monkeypatch):
    fd = define(lambda fd: fd.define_tensor([], True))
    (made,) = run(fd.repro_script_for([np.zeros((), np.float32)]), monkeypatch)
    assert made.shape == ()
    assert made.dtype == np.float32


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0, True, 3, 1 / 3, 1 + 2j])
def test_scalars(value, monkeypatch):
    _, made = run(definition().repro_script_for([[np.zeros((2, 2), np.float32), value]]), monkeypatch)
    assert repr(made) == repr(value)


@pytest.mark.parametrize(
    ("layout", "dtype", "device", "text"),
    [
        (((2, 4), (4, 1)), D.Float, "cuda:0", "torch.testing.make_tensor((2, 4), dtype=torch.float32, {})"),
        (((2, 4), (1, 2)), D.BFloat16, "cuda:1", "torch.randn(8, dtype=torch.bfloat16, {}).as_strided((2, 4), (1, 2))"),
        (
            ((2, 4), (8, 2)),
            D.Int,
            "cuda:0",
            "torch.randint(0, 10, (15,), dtype=torch.int64, {}).as_strided((2, 4), (8, 2))",
        ),
        (((3,), (2,)), D.Bool, "cuda:0", "torch.randint(0, 2, (5,), dtype=torch.bool, {}).as_strided((3,), (2,))"),
        (((0, 3), (1, 7)), D.Float, "cuda:0", "torch.testing.make_tensor((0, 3), dtype=torch.float32, {})"),
        (((), ()), D.Double, "cpu", "torch.testing.make_tensor((), dtype=torch.float64, {})"),
    ],
)
def test_torch_inputs(layout, dtype, device, text):
    script = repro_script(definition().fusion, [FakeInput(*layout, dtype, device, "torch"), 2.0])
    line = text.format(f"device='{device}'")
    assert f"    {line}," in script.splitlines()
    assert "import torch" in script.splitlines()
    assert "import numpy" not in script
    assert "    2.00000," in script.splitlines()


def test_package():
    script = repro_script(definition().fusion, None, package="other_name")
    assert "from other_name import FusionDefinition, DataType" in script


def test_last_repro_script():
    fd = definition()
    fd.fec = Recorder(fd.fusion)
    x = np.zeros((2, 3), np.float32)
    fd.execute([x, 2.5])
    with pytest.raises(AssertionError):
        fd.last_repro_script()
    fd.execute([x, 2.5], save_repro_inputs=None)
    with pytest.raises(AssertionError):
        fd.last_repro_script()
    fd.execute([x, 2.5], save_repro_inputs=True)
    assert fd.last_repro_script() == fd.repro_script_for(fd.fake_inputs) == fd.repro_script_for([x, 2.5])
