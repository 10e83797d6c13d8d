"""Limits of devices: a call that lacks some is told of the presets."""

from __future__ import annotations

import copy
import pickle
import traceback
from dataclasses import replace

import pytest

from fuser import DeviceInfo
from fuser.errors import DefinitionTypeError


def test_a_name_alone_is_a_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    with pytest.raises(DefinitionTypeError) as caught:
        DeviceInfo("sm_90")  # type: ignore[call-arg]
    text = caught.value.message
    assert text.startswith(
        "DeviceInfo(): incompatible function arguments. missing a required argument: 'arch'. Called as DeviceInfo(str); "
        "supported:\n    DeviceInfo(name"
    )
    assert text.endswith("\nDeviceInfo.preset('sm_90') has the limits of a GPU by its name")
    assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}


def test_limits_are_a_record_as_ever() -> None:
    info = DeviceInfo("mine", "sm_90", 4)
    assert pickle.loads(pickle.dumps(info)) == copy.deepcopy(info) == info
    assert replace(info, sm_count=8).sm_count == 8
