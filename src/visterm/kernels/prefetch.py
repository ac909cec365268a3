"""Asking memory for a row of weights before it is needed: it answers while the processor computes.

Training reads rows in no order that a processor could guess, and waits for most of them where there are thousands of
tags; the draws are known beforehand.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

AHEAD = 4  # Rows between asking and use
LINE = 16  # float32 numbers that memory sends at once
MOST = 128  # Numbers of a longer row that are asked for: the processor guesses the others


@intrinsic
def _prefetch(typing_context, matrix, row):
    """Write the requests for one row of a C-contiguous float32 matrix; others are refused when they are compiled."""
    if not isinstance(matrix, types.Array) or (matrix.dtype, matrix.ndim, matrix.layout) != (types.float32, 2, "C"):
        return None

    def write(context, builder, signature, values):
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, values[0])
        width = builder.extract_value(array.shape, 1)
        place, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        request = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [place, number, number, number]), "llvm.prefetch.p0i8"
        )
        to_read, to_keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        start = builder.gep(array.data, [builder.mul(context.cast(builder, values[1], row, types.intp), width)])
        first, step, most = (ir.Constant(width.type, value) for value in (0, LINE, MOST))
        end = builder.select(builder.icmp_signed("<", width, most), width, most)
        with cgutils.for_range_slice(builder, first, end, step, intp=width.type) as (c, _):
            builder.call(request, [builder.bitcast(builder.gep(start, [c]), place), to_read, to_keep, data])
        return context.get_dummy_value()

    return types.void(matrix, row), write


def _without(matrix, row):
    """Ask for nothing: uncompiled loops gain nothing by it."""


@njit(cache=True, nogil=True)
def _compiled(matrix, row):
    _prefetch(matrix, row)  # type: ignore[call-arg]


prefetch_row = _without if config.DISABLE_JIT else _compiled  # type: ignore[attr-defined]
"""Ask for row number `row` (not negative) of a C-contiguous float32 matrix; no result changes by it."""
