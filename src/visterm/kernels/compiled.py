"""The decorator of kernels: Numba compiles them at their first call, later processes load only their machine code."""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys


class _MachineCode(FunctionCache):
    """Numba's disk cache, without loading the compiler before machine code: that takes as long as importing Numba."""

    def load_overload(self, sig, target_context):
        """Load the machine code for arguments of these types, or return None, and Numba compiles the kernel.

        Of what Numba's own method prepares, machine code needs only the functions that allocate arrays.
        """
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def kernel(function):
    """Compile a function at its first call, without Python's lock while it runs, and keep its machine code on disk."""
    compiled: Any = njit(nogil=True)(function)
    if compiled is not function:  # the same with NUMBA_DISABLE_JIT
        compiled._cache = _MachineCode(function)
    return compiled
