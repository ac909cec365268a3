"""Dot products and scaled additions of rows in vector registers, with the same bytes on every machine.

A plain loop sums float32 numbers in scalar registers, because compilers may not reorder floating-point additions: a dot
product of 100 numbers takes 27 ns, mostly waiting. These kernels always use 32 independent running sums, which the
compiler can put into vectors of any width: 5 ns.

Rows can also be prefetched (`prefetch_row`), so that memory is read while the processor computes. Training reads rows
in an order that the processor cannot predict, and would wait for most rows if there are thousands of tags; the draws
are known in advance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from visterm.kernels.compiled import kernel

LANES = 8  # Running sums of one accumulator
CHAINS = 4  # Independent accumulators, so that additions do not wait for each other
ROWS_AHEAD = 4  # Number of rows between prefetch and use
LINE_FLOATS = 16  # float32 numbers per cache line
MAX_PREFETCHED = 128  # Maximum numbers of a row to prefetch: the processor predicts the rest

FLOAT = ir.FloatType()
INT = ir.IntType(32)


@intrinsic
def _vector_dot(typing_context, a, i, b, j, n):
    """Generate the loops of `dot_at` for two C-contiguous float32 arrays; others are refused at compile time."""
    if not (_is_float_array(a) and _is_float_array(b)):
        return None

    def write(context, builder, signature, values):
        return _write_loops(builder, _pointers(context, builder, signature, values), values[4])

    return types.float32(a, types.intp, b, types.intp, types.intp), write


@intrinsic
def _vector_add(typing_context, target, i, source, j, n, factor):
    """Generate the loops of `add_at`, for C-contiguous float32 arrays."""
    if not (_is_float_array(target) and _is_float_array(source)):
        return None

    def write(context, builder, signature, values):
        pointers = _pointers(context, builder, signature, values)
        n, factor = values[4:]
        vector = ir.VectorType(FLOAT, LANES)
        undefined = ir.Constant(vector, ir.Undefined)
        factors = builder.insert_element(undefined, factor, ir.Constant(INT, 0))
        factors = builder.shuffle_vector(factors, undefined, ir.Constant(ir.VectorType(INT, LANES), [0] * LANES))
        end = builder.sub(n, builder.srem(n, ir.Constant(n.type, LANES)))
        zero = ir.Constant(n.type, 0)
        for first, stop, width, kind, scale in ((zero, end, LANES, vector, factors), (end, n, 1, FLOAT, factor)):
            with cgutils.for_range_slice(builder, first, stop, ir.Constant(n.type, width), intp=n.type) as (c, _):
                target_at, source_at = (builder.bitcast(builder.gep(p, [c]), kind.as_pointer()) for p in pointers)
                product = builder.fmul(scale, builder.load(source_at, align=4))
                builder.store(builder.fadd(builder.load(target_at, align=4), product), target_at, align=4)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp, types.float32), write


def _is_float_array(kind):
    return isinstance(kind, types.Array) and (kind.dtype, kind.layout) == (types.float32, "C")


def _pointers(context, builder, signature, values):
    """Return pointers to the first used number of both arrays; the first 4 arguments are arrays and their offsets."""
    return [
        builder.gep(cgutils.create_struct_proxy(kind)(context, builder, value).data, [start])
        for kind, value, start in zip(signature.args[:4:2], values[:4:2], values[1:4:2], strict=True)
    ]


def _write_loops(builder, pointers, n):
    vector = ir.VectorType(FLOAT, LANES)
    sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES)) for _ in range(CHAINS)]
    rest_sum = cgutils.alloca_once_value(builder, ir.Constant(FLOAT, 0.0))

    def constant(value):
        return ir.Constant(n.type, value)

    def add_product(offset, kind, total):
        addresses = [builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer()) for pointer in pointers]
        product = builder.fmul(*(builder.load(pointer, align=4) for pointer in addresses))
        builder.store(builder.fadd(builder.load(total), product), total)

    def loop(first, stop, width):
        return cgutils.for_range_slice(builder, first, stop, constant(width), intp=n.type)

    wide_end = builder.sub(n, builder.srem(n, constant(LANES * CHAINS)))
    vector_end = builder.sub(n, builder.srem(n, constant(LANES)))
    with loop(constant(0), wide_end, LANES * CHAINS) as (c, _):
        for chain, total in enumerate(sums):
            add_product(builder.add(c, constant(chain * LANES)), vector, total)
    with loop(wide_end, vector_end, LANES) as (c, _):
        add_product(c, vector, sums[0])
    with loop(vector_end, n, 1) as (c, _):
        add_product(c, FLOAT, rest_sum)
    s0, s1, s2, s3 = (builder.load(total) for total in sums)
    lanes = builder.fadd(builder.fadd(s0, s1), builder.fadd(s2, s3))
    return builder.fadd(_sum_halves(builder, lanes), builder.load(rest_sum))


def _sum_halves(builder, lanes):
    """Add the upper half of a vector to the lower half until a single number is left."""
    width = LANES
    while width > 1:
        width //= 2
        undefined = ir.Constant(lanes.type, ir.Undefined)
        halves = [
            builder.shuffle_vector(
                lanes, undefined, ir.Constant(ir.VectorType(INT, width), list(range(first, first + width)))
            )
            for first in (0, width)
        ]
        lanes = builder.fadd(*halves)
    return builder.extract_element(lanes, ir.Constant(INT, 0))


def _plain_dot_at(a, i, b, j, n):
    return _plain_dot(a.reshape(-1)[i : i + n], b.reshape(-1)[j : j + n])


def _plain_add_at(target, i, source, j, n, factor):
    target.reshape(-1)[i : i + n] += factor * source.reshape(-1)[j : j + n]


def _plain_dot(a, b):
    """Compute `dot` without compiling, with sums in the same order."""
    n = len(a)
    sums = np.zeros((CHAINS, LANES), np.float32)
    wide_end, vector_end = n - n % sums.size, n - n % LANES
    for c in range(0, wide_end, sums.size):
        sums += (a[c : c + sums.size] * b[c : c + sums.size]).reshape(sums.shape)
    for c in range(wide_end, vector_end, LANES):
        sums[0] += a[c : c + LANES] * b[c : c + LANES]
    rest = np.float32(0.0)
    for c in range(vector_end, n):
        rest += a[c] * b[c]
    lanes = (sums[0] + sums[1]) + (sums[2] + sums[3])
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes[0] + rest


@kernel
def _compiled_dot(a, b):
    return _vector_dot(a, 0, b, 0, a.shape[0])  # type: ignore[call-arg]


dot = _plain_dot if config.DISABLE_JIT else _compiled_dot  # type: ignore[attr-defined]
"""Multiply two C-contiguous float32 vectors of the same length.

Product c is added to running sum ``c % 32`` (``c % 8`` after the last full 32, a separate sum after the last full 8),
and the sums are added in pairs: always in this order, so that the bytes depend on the numbers alone.
"""

dot_at: Any = _plain_dot_at if config.DISABLE_JIT else _vector_dot  # type: ignore[attr-defined]
"""``dot_at(a, i, b, j, n)``: the `dot` of n numbers of `a` from offset i and n numbers of `b` from offset j.

For compiled loops over many rows: `dot` would need views, and Numba counts references to them.
"""

add_at: Any = _plain_add_at if config.DISABLE_JIT else _vector_add  # type: ignore[attr-defined]
"""``add_at(target, i, source, j, n, factor)``: add `factor` times n numbers of `source` to `target`; see `dot_at`."""


@intrinsic
def _prefetch(typing_context, matrix, row):
    """Generate the prefetches of a row of a C-contiguous float32 matrix; others are refused at compile time."""
    if not isinstance(matrix, types.Array) or (matrix.dtype, matrix.ndim, matrix.layout) != (types.float32, 2, "C"):
        return None

    def write(context, builder, signature, values):
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, values[0])
        width = builder.extract_value(array.shape, 1)
        address_type, int_type = ir.IntType(8).as_pointer(), ir.IntType(32)
        request = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [address_type] + [int_type] * 3), "llvm.prefetch.p0i8"
        )
        to_read, to_keep, data = (ir.Constant(int_type, value) for value in (0, 3, 1))
        start = builder.gep(array.data, [builder.mul(context.cast(builder, values[1], row, types.intp), width)])
        first, step, limit = (ir.Constant(width.type, value) for value in (0, LINE_FLOATS, MAX_PREFETCHED))
        end = builder.select(builder.icmp_signed("<", width, limit), width, limit)
        with cgutils.for_range_slice(builder, first, end, step, intp=width.type) as (c, _):
            builder.call(request, [builder.bitcast(builder.gep(start, [c]), address_type), to_read, to_keep, data])
        return context.get_dummy_value()

    return types.void(matrix, row), write


def _prefetch_nothing(matrix, row):
    """Do nothing: uncompiled loops do not benefit from prefetching."""


@kernel
def _compiled_prefetch(matrix, row):
    _prefetch(matrix, row)  # type: ignore[call-arg]


prefetch_row = _prefetch_nothing if config.DISABLE_JIT else _compiled_prefetch  # type: ignore[attr-defined]
"""Prefetch row number `row` (not negative) of a C-contiguous float32 matrix; results do not change."""
