"""What the loops do to single numbers: memory by its address, and operations that are rounded one by one.

On a device these are LLVM's own loads, stores and rounded operations: a pointer into global memory, so that four floats are
one `ld.global.v4.f32`, and `mul.rn`/`add.rn`, which no compiler contracts to a fused multiply-add. Under Numba's CUDA
simulator (NUMBA_ENABLE_CUDASIM=1) they are plain Python on the memory of the CPU. Everything above is the same text for both.
"""

import ctypes
import importlib.util
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import config, cuda

SIMULATED = bool(config.ENABLE_CUDASIM)
THREADS = 8 if SIMULATED else 256
"""Threads of a block, a multiple of 8; the simulator runs each as a thread of Python."""

if not SIMULATED and importlib.util.find_spec("numba_cuda") is None:
    raise ModuleNotFoundError(
        "the tensors are on a GPU, whose kernels need the package numba-cuda: pip install 'mpisign[cuda]' and, for the compiler, "
        "numba-cuda[cu12] or numba-cuda[cu13], as the driver's CUDA; or keep the tensors on the CPU"
    )

if SIMULATED:
    kernel = cuda.jit

    def device(function: Callable[..., Any]) -> Callable[..., Any]:
        """Leave a function that kernels call as it is."""
        return function

    watched: list[tuple[int, int]] | None = None
    """First and last address + 1 of what may be touched, or None: anything."""

    def _place(address: Any, kind: Any) -> Any:
        address = int(address)
        if watched is not None and not any(
            start <= address and address + ctypes.sizeof(kind) <= stop for start, stop in watched
        ):
            raise IndexError(f"{ctypes.sizeof(kind)} bytes at {address:#x} belong to no tensor")
        if address % (16 if issubclass(kind, ctypes.Array) else ctypes.sizeof(kind)):
            raise IndexError(f"{ctypes.sizeof(kind)} bytes at {address:#x} are not aligned")
        return kind.from_address(address)

    def _loader(kind: Any, result: Any) -> Callable[[Any], Any]:
        return lambda address: result(_place(address, kind).value)

    def _storer(kind: Any) -> Callable[[Any, Any], None]:
        def store(address: Any, value: Any) -> None:
            _place(address, kind).value = value.item() if isinstance(value, np.generic) else value

        return store

    load_float, store_float = _loader(ctypes.c_float, np.float32), _storer(ctypes.c_float)
    load_double, store_double = _loader(ctypes.c_double, np.float64), _storer(ctypes.c_double)
    load_long, store_long = _loader(ctypes.c_int64, int), _storer(ctypes.c_int64)
    load_word, store_word = _loader(ctypes.c_uint64, np.uint64), _storer(ctypes.c_uint64)
    store_short, store_byte = _storer(ctypes.c_uint16), _storer(ctypes.c_uint8)

    def load_floats(address: Any) -> tuple[Any, ...]:
        """Four floats at once."""
        return tuple(np.float32(value) for value in _place(address, ctypes.c_float * 4))

    def store_floats(address: Any, a: Any, b: Any, c: Any, d: Any) -> None:
        """Four floats at once."""
        _place(address, ctypes.c_float * 4)[:] = [float(a), float(b), float(c), float(d)]

    _one_at_a_time = threading.Lock()

    def clear_bits(address: Any, keep: Any) -> None:
        """word ← word & keep, as one operation."""
        with _one_at_a_time:
            store_word(address, load_word(address) & keep)

    def add_long(address: Any, value: Any) -> None:
        """number ← number + value, as one operation."""
        with _one_at_a_time:
            store_long(address, load_long(address) + int(value))

    def _quietly(operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            with np.errstate(all="ignore"):
                return operation(*operands)

        return run

    multiply = multiply64 = multiply_words = _quietly(lambda a, b: a * b)
    add = add64 = add_words = _quietly(lambda a, b: a + b)
    divide = divide64 = _quietly(lambda a, b: a / b)
    narrow = _quietly(np.float32)

    def root64(value: Any) -> Any:
        """√value in float64."""
        return np.float64(math.sqrt(value)) if value >= 0 else np.float64("nan")

    def nearest(value: Any) -> int:
        """The nearest integer, half to even."""
        return int(np.rint(value))

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    device = cuda.jit(device=True)

    def kernel(function: Callable[..., Any]) -> Any:
        """Compile a kernel; what runs is the code that tests look at, not what an optimising linker makes of it."""
        return cuda.jit(function, lto=False)

    _F32, _F64, _I8, _I16, _I32, _I64 = ir.FloatType(), ir.DoubleType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64))
    _F32X4 = ir.VectorType(_F32, 4)
    _FOUR = types.UniTuple(types.float32, 4)

    def _global(builder: Any, address: Any, kind: Any) -> Any:
        return builder.inttoptr(address, ir.PointerType(kind, 1))  # address space 1: ld.global, st.global

    def _loader(kind: Any, result: Any, align: int) -> Any:
        @intrinsic
        def load(_typing: Any, address: Any) -> Any:
            def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
                return builder.load(_global(builder, args[0], kind), align=align)

            return result(types.int64), generate

        return load

    def _storer(kind: Any, value_type: Any, align: int) -> Any:
        @intrinsic
        def store(_typing: Any, address: Any, value: Any) -> Any:
            def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
                builder.store(args[1], _global(builder, args[0], kind), align=align)

            return types.void(types.int64, value_type), generate

        return store

    load_float, store_float = _loader(_F32, types.float32, 4), _storer(_F32, types.float32, 4)
    load_double, store_double = _loader(_F64, types.float64, 8), _storer(_F64, types.float64, 8)
    load_long, store_long = _loader(_I64, types.int64, 8), _storer(_I64, types.int64, 8)
    load_word, store_word = _loader(_I64, types.uint64, 8), _storer(_I64, types.uint64, 8)
    store_short, store_byte = _storer(_I16, types.uint16, 2), _storer(_I8, types.uint8, 1)

    @intrinsic
    def load_floats(_typing: Any, address: Any) -> Any:
        """Four floats at once, from a multiple of 16."""

        def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            four = builder.load(_global(builder, args[0], _F32X4), align=16)
            parts = [builder.extract_element(four, ir.Constant(_I32, j)) for j in range(4)]
            return context.make_tuple(builder, _FOUR, parts)

        return _FOUR(types.int64), generate

    @intrinsic
    def store_floats(_typing: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        """Four floats at once, to a multiple of 16."""

        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            four = ir.Constant(_F32X4, ir.Undefined)
            for j in range(4):
                four = builder.insert_element(four, args[1 + j], ir.Constant(_I32, j))
            builder.store(four, _global(builder, args[0], _F32X4), align=16)

        return types.void(types.int64, *[types.float32] * 4), generate

    def _atomic(operation: str, value_type: Any) -> Any:
        @intrinsic
        def change(_typing: Any, address: Any, value: Any) -> Any:
            def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
                builder.atomic_rmw(operation, _global(builder, args[0], _I64), args[1], "monotonic")

            return types.void(types.int64, value_type), generate

        return change

    clear_bits, add_long = _atomic("and", types.uint64), _atomic("add", types.int64)

    def _rounded(name: str, kind: Any, of: Any) -> Any:
        @intrinsic
        def operate(_typing: Any, a: Any, b: Any) -> Any:
            def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
                function = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind, kind]))
                return builder.call(function, args)

            return of(of, of), generate

        return operate

    multiply, multiply64 = (
        _rounded("llvm.nvvm.mul.rn.f", _F32, types.float32),
        _rounded("llvm.nvvm.mul.rn.d", _F64, types.float64),
    )
    add, add64 = (
        _rounded("llvm.nvvm.add.rn.f", _F32, types.float32),
        _rounded("llvm.nvvm.add.rn.d", _F64, types.float64),
    )
    divide, divide64 = (
        _rounded("llvm.nvvm.div.rn.f", _F32, types.float32),
        _rounded("llvm.nvvm.div.rn.d", _F64, types.float64),
    )

    @device
    def multiply_words(a, b):  # type: ignore
        """a·b mod 2⁶⁴."""
        return a * b

    @device
    def add_words(a, b):  # type: ignore
        """a + b mod 2⁶⁴."""
        return a + b

    @device
    def narrow(value):  # type: ignore
        """A float64 rounded to float32."""
        return np.float32(value)

    @intrinsic
    def root64(_typing: Any, value: Any) -> Any:
        """√value in float64."""

        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            function = builder.module.declare_intrinsic("llvm.nvvm.sqrt.rn.d", (), ir.FunctionType(_F64, [_F64]))
            return builder.call(function, args)

        return types.float64(types.float64), generate

    @intrinsic
    def nearest(_typing: Any, value: Any) -> Any:
        """The nearest integer, half to even."""

        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            function = builder.module.declare_intrinsic("llvm.nvvm.f2i.rn", (), ir.FunctionType(_I32, [_F32]))
            return builder.call(function, args)

        return types.int32(types.float32), generate


@device
def is_finite(value):  # type: ignore
    """Neither an infinity nor NaN."""
    return abs(value) <= np.float32(3.4028235e38)


@device
def read(address, size, wide):  # type: ignore
    """The first `size` of four floats, at once where `wide`; the others are 0."""
    if wide and size == 4:
        return load_floats(address)
    zero = np.float32(0)
    return (
        load_float(address),
        load_float(address + 4) if size > 1 else zero,
        load_float(address + 8) if size > 2 else zero,
        load_float(address + 12) if size > 3 else zero,
    )


@device
def write(address, size, wide, a, b, c, d):  # type: ignore
    """The first `size` of four floats, at once where `wide`."""
    if wide and size == 4:
        store_floats(address, a, b, c, d)
        return
    store_float(address, a)
    if size > 1:
        store_float(address + 4, b)
    if size > 2:
        store_float(address + 8, c)
    if size > 3:
        store_float(address + 12, d)


@device
def bit(word, number):  # type: ignore
    """Bit `number` of a word, 0 or 1."""
    return (word >> np.uint64(number)) & np.uint64(1)


@device
def coin(key, counter):  # type: ignore
    """64 fair bits for (key, counter): splitmix64, as on the CPU."""
    z = add_words(np.uint64(key), multiply_words(np.uint64(counter + 1), np.uint64(0x9E3779B97F4A7C15)))
    z = multiply_words(z ^ (z >> np.uint64(30)), np.uint64(0xBF58476D1CE4E5B9))
    z = multiply_words(z ^ (z >> np.uint64(27)), np.uint64(0x94D049BB133111EB))
    return z ^ (z >> np.uint64(31))
