"""`translate_fusion`: the executable text of a fusion, which is also `repr(fd)`."""

from __future__ import annotations

from fuser.errors import DefinitionTypeError
from fuser.frontend.fusion_handle import Fusion
from fuser.ir.fusion.print_fusion import definition_text
from fuser.source_location import caller_location
from fuser.tracebacks import short_traceback


@short_traceback
def translate_fusion(fusion: Fusion) -> str:
    """Python that rebuilds the fusion in a namespace of `FusionDefinition` and `DataType`; its schedule is not printed.

    Raises DefinitionTypeError for anything but a Fusion.
    """
    if not isinstance(fusion, Fusion):
        raise DefinitionTypeError(
            f"translate_fusion(): incompatible function arguments. Expected a Fusion, got {type(fusion).__name__}",
            location=caller_location(),
        )
    comments = ["The schedule of this fusion is not part of this text."] if fusion.schedule is not None else []
    return definition_text(fusion.ir_fusion, comments)
