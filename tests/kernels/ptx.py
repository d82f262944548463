"""Runs the PTX of the CUDA kernels on the CPU, one thread of a block after the other, between barriers.

PTX is translated to Python line by line: registers become variables, integers whole numbers below 2 to their width, floats
NumPy scalars, so that each operation is rounded as on a device. Only what the kernels need is known; anything else raises.
"""

import ctypes
import math
import re
import struct
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LETTER = {1: "b", 2: "h", 4: "i", 8: "q"}


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def _nearest(value: Any) -> int:
    return int(np.rint(value)) & 0xFFFFFFFF


def _root(value: float) -> np.float64:
    return np.float64(math.sqrt(value)) if value >= 0 else np.float64("nan")


class Program:
    """One compiled kernel.

    Args:
        ptx: of one entry.
        may_touch: raises where (address, bytes) belongs to nobody.
    """

    def __init__(self, ptx: str, may_touch: Callable[[int, int], None]) -> None:
        self._may_touch = may_touch
        self._shared_at, self._shared_size = {}, 0
        for align, name, size in re.findall(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\];", ptx):
            self._shared_size += -self._shared_size % int(align)
            self._shared_at[name] = self._shared_size
            self._shared_size += int(size)
        body = ptx[ptx.index(".visible .entry") :]
        source = self._translate(body[body.index(")\n{") + 3 :])
        names: dict[str, Any] = {
            "np": np, "F": np.float32, "D": np.float64, "signed": _signed, "nearest": _nearest, "root": _root,
            "load": self._load, "store": self._store, "unpack": struct.unpack_from, "pack": struct.pack_into,
        }  # fmt: skip
        exec(compile(source, "<ptx>", "exec"), names)
        self._thread: Callable[..., Generator[Any, bool, None]] = names["thread"]

    def run(self, blocks: int, threads: int, arguments: list[int]) -> None:
        """Run all blocks, one after the other."""
        given = [argument & (2**64 - 1) for argument in arguments]
        with np.errstate(all="ignore"):
            for block in range(blocks):
                shared = bytearray(self._shared_size)
                waiting = [self._thread(given, thread, block, threads, shared) for thread in range(threads)]
                answer: bool | None = None
                while waiting:
                    votes = []
                    for thread in waiting:
                        try:
                            votes.append((thread, thread.send(answer)))
                        except StopIteration:
                            continue
                    # threads that have returned are not waited for: the kernels have no barrier behind a return
                    waiting, answer = [thread for thread, _ in votes], any(vote for _, vote in votes)

    def _place(self, address: int, kind: Any, count: int = 1) -> Any:
        size = ctypes.sizeof(kind) * count
        self._may_touch(address, size)
        if address % size:
            raise IndexError(f"{size} bytes at {address:#x} are not aligned")
        return (kind * count).from_address(address)

    def _load(self, address: int, kind: str, count: int = 1) -> Any:
        place = self._place(address, _ctype(kind), count)
        if kind[0] == "f":
            values = tuple((np.float32 if kind == "f32" else np.float64)(value) for value in place)
        else:
            values = tuple(value & (2**64 - 1) for value in place)
        return values if count > 1 else values[0]

    def _store(self, address: int, kind: str, *values: Any) -> None:
        place = self._place(address, _ctype(kind), len(values))
        place[:] = [float(v) if kind[0] == "f" else v & ((1 << int(kind[1:])) - 1) for v in values]

    def _translate(self, body: str) -> str:
        blocks: dict[str, list[str]] = {"entry": []}
        label, scope = "entry", 0
        renamed: set[str] = set()
        for text in body.splitlines():
            line = text.partition("//")[0].strip()
            if line == "{":
                scope += 1
            elif line == "}":
                scope, renamed = scope - 1, set()
            elif line.startswith((".reg", ".pragma")):
                if scope:
                    renamed |= set(re.findall(r"%\w+", line))
            elif line.endswith(":"):
                before, label = label, line[:-1]
                blocks[before].append(f"label = {label!r}; continue")
                blocks[label] = []
            elif line:
                for register in renamed:
                    line = re.sub(rf"{register}\b", f"{register}_inner", line)
                blocks[label].append(self._statement(line.rstrip(";").strip()))
        lines = [
            "def thread(given, tid, ctaid, ntid, shared):",
            " label = 'entry'",
            " while True:",
            "  if not label: yield",
        ]
        for label, statements in blocks.items():
            lines.append(f"  if label == {label!r}:")
            lines += [f"   {statement}" for statement in statements]
        return "\n".join(lines) + "\n"

    def _statement(self, line: str) -> str:
        guard = re.match(r"@(!?)%(\w+)\s+", line)
        if guard:
            line = line[guard.end() :]
        name, _, rest = line.partition(" ") if " " in line else (line, "", "")
        name, _, more = name.partition("\t")
        operands = self._operands(f"{more} {rest}")
        statement = self._operation(name.split("."), operands)
        return f"if {'not ' if guard[1] else ''}{guard[2]}: {statement}" if guard else statement

    def _operands(self, text: str) -> list[Any]:
        found = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", text)
        return [self._operand(part) for part in found]

    def _operand(self, text: str) -> Any:
        if text[0] == "{":
            return "(" + ", ".join(self._operand(part.strip()) for part in text[1:-1].split(",")) + ",)"
        if text[0] == "[":
            base, _, offset = text[1:-1].partition("+")
            parameter = re.search(r"_param_(\d+)$", base)
            return f"given[{parameter[1]}]" if parameter else f"({self._operand(base)} + {int(offset or 0)})"
        special = {"%tid.x": "tid", "%ntid.x": "ntid", "%ctaid.x": "ctaid"}
        if text in special:
            return special[text]
        if text[0] == "%":
            return text[1:]
        if text[:2] == "0f":
            return f"F({struct.unpack('>f', bytes.fromhex(text[2:]))[0]!r})".replace("inf", "'inf'")
        if text[:2] == "0d":
            return f"D({struct.unpack('>d', bytes.fromhex(text[2:]))[0]!r})".replace("inf", "'inf'")
        if text in self._shared_at:
            return str(self._shared_at[text])
        return text

    def _operation(self, op: list[str], x: list[Any]) -> str:
        kind, width = op[-1], int(re.sub(r"\D", "", op[-1]) or 0)
        real, mask = kind[0] == "f", (1 << width) - 1

        def number(text: str) -> str:
            return text if real else f"signed({text} & {mask}, {width})" if kind[0] == "s" else f"({text} & {mask})"

        match op:
            case ["ret"]:
                return "return"
            case ["bra", *_]:
                return f"label = {x[0]!r}; continue"
            case ["bar", "sync"]:
                return "yield False"
            case ["bar", "red", "or", "pred"]:
                return f"{x[0]} = yield {x[2]}"
            case ["mov", "pred"]:
                return f"{x[0]} = {x[1]} not in (0, '0')"
            case ["mov", _]:
                return f"{x[0]} = {x[1]}" if real else f"{x[0]} = {x[1]} & {mask}"
            case ["ld", "param", _]:
                return f"{x[0]} = {x[1]}"
            case ["ld", "global", "v4", "f32"]:
                return f"{x[0][:-2]}) = load({x[1]}, 'f32', 4)"
            case ["st", "global", "v4", "f32"]:
                return f"store({x[0]}, 'f32', *{x[1]})"
            case ["ld", "global", _]:
                return f"{x[0]} = load({x[1]}, {kind!r})"
            case ["st", "global", _]:
                return f"store({x[0]}, {kind!r}, {x[1]})"
            case ["ld", "shared", _]:
                form = _form(kind)
                read = f"unpack({form!r}, shared, {x[1]})[0]"
                return f"{x[0]} = {'D' if width == 64 else 'F'}({read})" if real else f"{x[0]} = {read} & {2**64 - 1}"
            case ["st", "shared", _]:
                value = x[1] if real else f"{x[1]} & {mask}"
                return f"pack({_form(kind if real else f'u{width}')!r}, shared, {x[0]}, {value})"
            case ["atom", "global", ("add" | "and") as how, _]:
                old = f"{x[0]} = load({x[1]}, 'u64')"
                new = f"({x[0]} {'+' if how == 'add' else '&'} {x[2]}) & {mask}"
                return f"{old}; store({x[1]}, 'u64', {new})"
            case ["setp", how, _] if how in _COMPARE:
                return f"{x[0]} = bool({number(x[1])} {_COMPARE[how]} {number(x[2])})"
            case ["setp", how, "f32" | "f64"] if how[-1] == "u" and how[:-1] in _COMPARE:  # true where one is NaN, too
                opposite = {"eq": "!=", "ne": "==", "lt": ">=", "le": ">", "gt": "<=", "ge": "<"}[how[:-1]]
                ordered = f"{x[1]} == {x[1]} and {x[2]} == {x[2]}"
                return f"{x[0]} = not ({ordered} and {x[1]} {opposite} {x[2]})"
            case ["selp", _]:
                value = f"({x[1]} if {x[3]} else {x[2]})"
                return f"{x[0]} = {value}" if real else f"{x[0]} = {value} & {mask}"
            case ["not", "pred"]:
                return f"{x[0]} = not {x[1]}"
            case [("and" | "or" | "xor") as how, "pred"]:
                return f"{x[0]} = bool({x[1]} {_BITWISE[how]} {x[2]})"
            case [("and" | "or" | "xor") as how, _]:
                return f"{x[0]} = ({x[1]} {_BITWISE[how]} {x[2]}) & {mask}"
            case ["not", _]:
                return f"{x[0]} = ~{x[1]} & {mask}"
            case ["shl", _]:
                return f"{x[0]} = ({x[1]} << {x[2]}) & {mask} if {x[2]} < {width} else 0"
            case ["shr", _]:
                return f"{x[0]} = ({number(x[1])} >> {x[2]}) & {mask}"
            case ["popc", _]:
                return f"{x[0]} = ({x[1]} & {mask}).bit_count()"
            case ["mul", "wide", "s32" | "u32"]:
                return f"{x[0]} = ({number(x[1])} * {number(x[2])}) & {2**64 - 1}"
            case ["mul", "rn", "f32" | "f64"]:
                return f"{x[0]} = {x[1]} * {x[2]}"
            case ["add", "rn", "f32" | "f64"]:
                return f"{x[0]} = {x[1]} + {x[2]}"
            case ["div", "rn", "f32" | "f64"]:
                return f"{x[0]} = {x[1]} / {x[2]}"
            case ["sqrt", "rn", "f64"]:
                return f"{x[0]} = root({x[1]})"
            case ["abs", "f32" | "f64"]:
                return f"{x[0]} = abs({x[1]})"
            case ["neg", _]:
                return f"{x[0]} = -{x[1]}" if real else f"{x[0]} = -{x[1]} & {mask}"
            case [("add" | "sub") as how, _] if not real:
                return f"{x[0]} = ({x[1]} {'+' if how == 'add' else '-'} {x[2]}) & {mask}"
            case ["mul", "lo", _] if not real:
                return f"{x[0]} = ({x[1]} * {x[2]}) & {mask}"
            case [("min" | "max") as how, _] if not real:
                return f"{x[0]} = {how}({number(x[1])}, {number(x[2])}) & {mask}"
            case ["cvt", *how]:
                return f"{x[0]} = {_conversion(how, x[1])}"
        raise NotImplementedError(".".join(op))


_BITWISE = {"and": "&", "or": "|", "xor": "^"}


def _ctype(kind: str) -> Any:
    unsigned = {8: ctypes.c_uint8, 16: ctypes.c_uint16, 32: ctypes.c_uint32, 64: ctypes.c_uint64}
    signed = {8: ctypes.c_int8, 16: ctypes.c_int16, 32: ctypes.c_int32, 64: ctypes.c_int64}
    if kind[0] == "f":
        return ctypes.c_float if kind == "f32" else ctypes.c_double
    return (signed if kind[0] == "s" else unsigned)[int(kind[1:])]


def _form(kind: str) -> str:
    if kind[0] == "f":
        return "<f" if kind == "f32" else "<d"
    letter = _LETTER[int(kind[1:]) // 8]
    return "<" + (letter if kind[0] == "s" else letter.upper())


def _conversion(how: list[str], value: str) -> str:
    to, of = how[-2], how[-1]
    width = int(of[1:])
    whole = f"signed({value} & {(1 << width) - 1}, {width})" if of[0] == "s" else f"({value} & {(1 << width) - 1})"
    match how:
        case ["rni", "s32", "f32"]:
            return f"nearest({value})"
        case ["rn", "f32", "f64"]:
            return f"F({value})"
        case ["f64", "f32"]:
            return f"D({value})"
        case ["rn", "f32", "s64" | "u64" | "s32" | "u32"]:
            return f"np.{'u' if of[0] == 'u' else ''}int64({whole}).astype(F)"
        case ["rn", "f64", "s64" | "u64"] | ["f64", "s32" | "u32"] | ["rn", "f64", "s32" | "u32"]:
            return f"np.{'u' if of[0] == 'u' else ''}int64({whole}).astype(D)"
        case [
            ("s16" | "u16" | "s32" | "u32" | "s64" | "u64"),
            ("s8" | "u8" | "s16" | "u16" | "s32" | "u32" | "s64" | "u64"),
        ]:
            return f"{whole} & {(1 << int(to[1:])) - 1}"
    raise NotImplementedError("cvt." + ".".join(how))
