"""A worker for test_supervise: each item's name says what becomes of it."""

from __future__ import annotations

import os
import sys
import time

from benchmarks.supervise import SPOILED, report


def main() -> int:
    for name in sys.stdin.read().split():
        if name.startswith("dies"):
            os._exit(9)
        if name.startswith("hangs"):
            time.sleep(60)
        report(name, done=True)
        if name.startswith("spoils"):
            return SPOILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
