"""Arrays in memory as instructions of LLVM: their entries read, stored and copied, of all members at once."""

from typing import final

import numpy as np

from ._instructions import Emitter, Machine, Place, stored_type


@final
class Memory:
    """Reads and writes arrays.

    - `mask`: which members go on, where not all of them do: the others store nothing.

    **Arguments:**

    - `emit`: writes the instructions.
    - `machine`: what they are for.
    """

    def __init__(self, emit: Emitter, machine: Machine):
        self.emit, self.machine, self.mask = emit, machine, ""

    def address(self, place: Place, index: str, t: str) -> str:
        """Where an entry of the first member is."""
        pointer = self.machine.find(self.emit, place) if place.header else place.pointer
        if index.isdigit() and place.stride.isdigit():
            offset = int(index) * int(place.stride)
            return (
                self.emit(f"getelementptr {stored_type(t)}, ptr {pointer}, i64 {offset}")
                if offset
                else pointer
            )
        offset = index if place.stride == "1" else self.emit(f"mul i64 {index}, {place.stride}")
        return self.emit(f"getelementptr {stored_type(t)}, ptr {pointer}, i64 {offset}")

    def read(self, place: Place, index: str, t: str) -> str:
        """An entry of all members, at the same place of each."""
        address, kind = self.address(place, index, t), stored_type(t)
        if place.lane == 0:
            value = self.emit.spread(self.emit(f"load {kind}, ptr {address}"), kind)
        else:
            value = self.emit(f"load {self.emit.lanes(kind)}, ptr {address}, align {np.dtype(t).itemsize}")
        return self.emit.truth(value) if t == "bool" else value

    def write(self, place: Place, index: str, value: str, t: str, mask: str = "") -> None:
        """Stores an entry of all members, at the same place of each."""
        kind = self.emit.lanes(stored_type(t))
        if mask:
            value = self.emit.choose(mask, value, self.read(place, index, t), t)
        if t == "bool":
            value = self.emit(f"zext {self.emit.lanes('i1')} {value} to {kind}")
        self.emit.do(
            f"store {kind} {value}, ptr {self.address(place, index, t)}, align {np.dtype(t).itemsize}"
        )

    def _addresses(self, place: Place, index: str, t: str) -> str:
        """Where the entries are that each member asks for."""
        pointer = self.machine.find(self.emit, place) if place.header else place.pointer
        many = self.emit.lanes("i64")
        stride = (
            self.emit.spread(place.stride, "i64")
            if place.stride.startswith("%")
            else self.emit.repeat("i64", place.stride)
        )
        offset = self.emit(f"mul {many} {index}, {stride}")
        if place.lane:
            lanes = "<" + ", ".join(f"i64 {k}" for k in range(self.emit.width)) + ">"
            offset = self.emit(f"add {many} {offset}, {lanes}")
        return self.emit(f"getelementptr {stored_type(t)}, ptr {pointer}, {many} {offset}")

    def read_at(self, place: Place, index: str, t: str) -> str:
        """An entry of each member that goes on, at a place of its own: others may ask for places that are none."""
        if self.emit.width == 1:
            return self.read(place, index, t)
        where, mask = self._addresses(place, index, t), self.mask or self.emit.constant(True, "bool")
        value = self.emit.gather(where, mask, t)
        return self.emit.truth(value) if t == "bool" else value

    def write_at(self, place: Place, index: str, value: str, t: str) -> None:
        """Stores an entry of each member that goes on, at a place of its own."""
        if self.emit.width == 1:
            return self.write(place, index, value, t)
        if t == "bool":
            value = self.emit(f"zext {self.emit.lanes('i1')} {value} to {self.emit.lanes('i8')}")
        where, mask = self._addresses(place, index, t), self.mask or self.emit.constant(True, "bool")
        self.emit.scatter(value, where, mask, t)

    def copy(self, source: Place, target: Place, t: str, size: int, mask: str) -> None:
        """Copies an array of each member."""
        if source == target:
            return
        packed = str(self.emit.width), 1
        if size > 8 and not mask and (source.stride, source.lane) == packed == (target.stride, target.lane):
            self.emit.declared["llvm.memcpy"] = "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
            given = f"ptr {target.pointer}, ptr {source.pointer}, i64 {size * self.emit.width * np.dtype(t).itemsize}"
            self.emit.do(f"call void @llvm.memcpy.p0.p0.i64({given}, i1 false)")
        elif size <= 8:
            for k in range(size):
                self.write(target, str(k), self.read(source, str(k), t), t, mask)
        else:
            self.emit.count_up(str(size), lambda k: self.write(target, k, self.read(source, k, t), t, mask))

    def fill(self, place: Place, value: str, t: str, size: int) -> None:
        """Fills an array of each member: where entries are side by side, by vectors."""
        wide = 1 if place.stride != "1" or t == "bool" else 64 // np.dtype(t).itemsize
        if wide > 1 and size >= 4 * wide:
            kind, whole = stored_type(t), size - size % wide
            kinds = f"<{wide} x {kind}>"
            first = self.emit(f"insertelement {kinds} poison, {kind} {value}, i32 0")
            many = self.emit(f"shufflevector {kinds} {first}, {kinds} poison, <{wide} x i32> zeroinitializer")

            def write(k: str) -> None:
                pointer = self.emit(f"getelementptr {kinds}, ptr {place.pointer}, i64 {k}")
                self.emit.do(f"store {kinds} {many}, ptr {pointer}, align {np.dtype(t).itemsize}")

            self.emit.count_up(str(whole // wide), write)
            for k in range(whole, size):
                self.write(place, str(k), value, t)
        else:
            self.emit.count_up(str(size), lambda k: self.write(place, k, value, t))
