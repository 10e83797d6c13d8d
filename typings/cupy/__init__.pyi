# Optional package: seen as untyped whether installed or not, so that checks do not depend on what is installed.
from typing import Any

def __getattr__(name: str) -> Any: ...
