"""Sums of magnitudes and squares in the order of the CPU, so that they have its bits.

The order is the definition: eight lanes a parameter, each from its first coordinate to its last. So a block does a parameter:
all threads fetch, eight add. Their additions wait for each other, which bounds a large parameter's time, not bandwidth.
"""

import numpy as np
from numba import cuda

from .memory import (
    THREADS,
    add64,
    device,
    kernel,
    load_double,
    load_long,
    multiply64,
    narrow,
    read,
    root64,
    store_double,
    store_float,
)

LANES = 8

_CHUNK = 4 * THREADS


@device
def _fetch(vector, numel, e):  # type: ignore
    if e < numel:
        return read(vector + 4 * e, min(4, numel - e), (vector & 15) == 0)
    return np.float32(0), np.float32(0), np.float32(0), np.float32(0)


@device
def _power(value, squared):  # type: ignore
    wide = np.float64(value)
    return multiply64(wide, wide) if squared else abs(wide)


@kernel
def power_sums(table, parameters, squared, sums):  # type: ignore
    """Σ|v| or Σv² of each parameter in float64, as on the CPU: block p writes sums[p], 0 where there is no vector."""
    chunk = cuda.shared.array(_CHUNK, np.float64)
    lanes = cuda.shared.array(LANES, np.float64)
    thread, p = cuda.threadIdx.x, np.int64(cuda.blockIdx.x)
    vector, numel = load_long(table + 8 * p), load_long(table + 8 * (parameters + p))
    total = np.float64(0)
    if vector != 0:
        a, b, c, d = _fetch(vector, numel, 4 * thread)
        for first in range(0, numel, _CHUNK):
            chunk[4 * thread] = _power(a, squared)
            chunk[4 * thread + 1] = _power(b, squared)
            chunk[4 * thread + 2] = _power(c, squared)
            chunk[4 * thread + 3] = _power(d, squared)
            cuda.syncthreads()
            a, b, c, d = _fetch(vector, numel, first + _CHUNK + 4 * thread)  # under way while eight threads add
            if thread < LANES:
                for e in range(thread, min(_CHUNK, numel - first), LANES):
                    total = add64(total, chunk[e])
            cuda.syncthreads()
    if thread < LANES:
        lanes[thread] = total
    cuda.syncthreads()
    if thread == 0:
        total = np.float64(0)
        for lane in range(LANES):
            total = add64(total, lanes[lane])
        store_double(sums + 8 * p, total)


@kernel
def norm(sums, parameters, out):  # type: ignore
    """√ of the sums added in order, rounded to float32: one block."""
    chunk = cuda.shared.array(THREADS, np.float64)
    thread, total = cuda.threadIdx.x, np.float64(0)
    for first in range(0, parameters, THREADS):
        if first + thread < parameters:
            chunk[thread] = load_double(sums + 8 * (first + thread))
        cuda.syncthreads()
        if thread == 0:
            for i in range(min(THREADS, parameters - first)):
                total = add64(total, chunk[i])
        cuda.syncthreads()
    if thread == 0:
        store_float(out, narrow(root64(total)))
