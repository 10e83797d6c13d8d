"""The ops of the DSL, where users import them from: `from fuser.ops import exp`.

The module is `fuser.frontend.ops` itself.
"""

import sys

from fuser.frontend import ops

sys.modules[__name__] = ops
