"""Dot products in vector registers, with the same bytes on every machine.

Compiled plainly, a sum of float32 stays in scalar registers, because floating-point additions may not change their
order: a dot product of 100 numbers then takes 27 ns, most of them spent waiting. Here the order is fixed beforehand, as
32 running sums side by side, which the compiler may put into vectors of whatever width the processor has: 5 ns.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8  # Running sums of one accumulator
CHAINS = 4  # Accumulators, so that no addition waits for the one before
FLOAT = ir.FloatType()
INT = ir.IntType(32)


@intrinsic
def _vector_dot(typing_context, a, b):
    """Write the loops of `dot` for two C-contiguous float32 vectors; others are refused when they are compiled."""
    for kind in (a, b):
        if not isinstance(kind, types.Array) or (kind.dtype, kind.ndim, kind.layout) != (types.float32, 1, "C"):
            return None

    def write(context, builder, signature, values):
        proxies = [
            cgutils.create_struct_proxy(kind)(context, builder, value)
            for kind, value in zip(signature.args, values, strict=True)
        ]
        return _write_loops(builder, [proxy.data for proxy in proxies], builder.extract_value(proxies[0].shape, 0))

    return types.float32(a, b), write


def _write_loops(builder, pointers, n):
    vector = ir.VectorType(FLOAT, LANES)
    sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES)) for _ in range(CHAINS)]
    rest = cgutils.alloca_once_value(builder, ir.Constant(FLOAT, 0.0))

    def number(value):
        return ir.Constant(n.type, value)

    def add_product(place, kind, total):
        at = [builder.bitcast(builder.gep(pointer, [place]), kind.as_pointer()) for pointer in pointers]
        product = builder.fmul(*(builder.load(each, align=4) for each in at))
        builder.store(builder.fadd(builder.load(total), product), total)

    def loop(first, last, width):
        return cgutils.for_range_slice(builder, first, last, number(width), intp=n.type)

    wide_end = builder.sub(n, builder.srem(n, number(LANES * CHAINS)))
    vector_end = builder.sub(n, builder.srem(n, number(LANES)))
    with loop(number(0), wide_end, LANES * CHAINS) as (c, _):
        for chain, total in enumerate(sums):
            add_product(builder.add(c, number(chain * LANES)), vector, total)
    with loop(wide_end, vector_end, LANES) as (c, _):
        add_product(c, vector, sums[0])
    with loop(vector_end, n, 1) as (c, _):
        add_product(c, FLOAT, rest)
    s0, s1, s2, s3 = (builder.load(total) for total in sums)
    lanes = builder.fadd(builder.fadd(s0, s1), builder.fadd(s2, s3))
    return builder.fadd(_sum_halves(builder, lanes), builder.load(rest))


def _sum_halves(builder, lanes):
    """Add the upper half of a vector to the lower, until one number is left."""
    width = LANES
    while width > 1:
        width //= 2
        nothing = ir.Constant(lanes.type, ir.Undefined)
        halves = [
            builder.shuffle_vector(
                lanes, nothing, ir.Constant(ir.VectorType(INT, width), list(range(first, first + width)))
            )
            for first in (0, width)
        ]
        lanes = builder.fadd(*halves)
    return builder.extract_element(lanes, ir.Constant(INT, 0))


def _plain_dot(a, b):
    """Add up in the same order without compiling."""
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


@njit(cache=True, nogil=True)
def _compiled_dot(a, b):
    return _vector_dot(a, b)  # type: ignore[call-arg]


dot = _plain_dot if config.DISABLE_JIT else _compiled_dot  # type: ignore[attr-defined]
"""Multiply two C-contiguous float32 vectors of the same length.

Number c is added to running sum ``c % 32`` (``c % 8`` after the last whole 32, one more sum after the last whole 8),
and the sums are added pair by pair: always in this order, so that the bytes depend on the numbers alone.
"""
