from fuser.frontend.ops import *  # noqa: F403 - whatever ops there are
