"""When this process began to import the package: what changed on disk since may not be what runs."""

from __future__ import annotations

import time

IMPORTED_NS = time.time_ns()
