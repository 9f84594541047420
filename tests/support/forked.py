"""A function in a forked process: its crash, its hang and its memory are nobody else's."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable


def in_child(function: Callable[[], object], seconds: int = 0) -> int:
    """Return the exit status: 0, 1 after an exception, or minus the signal that ended the child.

    Args:
        function: What the child does.
        seconds: SIGALRM ends the child after them; 0: it may take as long as it wants.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(seconds)
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Past the clean-up of libraries that the other process still uses.
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
