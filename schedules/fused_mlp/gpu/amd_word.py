"""Stored elements in 32-bit registers: one float32, or two of 16 bits, the first one lowest."""

from __future__ import annotations

from typing import Any

from tunerplugin.integrations.compat import T

from ..description import DType

Expression = Any


class Word:
    """The registers of a storage type.  bfloat16 never appears as such: TVM would widen it."""

    def __init__(self, storage: DType) -> None:
        self.storage = storage
        self.elements = 1 if storage == "float32" else 2
        self.dtype = "float32" if storage == "float32" else "int32"

    def count(self, elements: int) -> int:
        """Words of so many elements, which fill them."""
        return elements // self.elements

    def of_stored(self, values: Expression, elements: int) -> Expression:
        """A vector as it lies in memory, as words."""
        return values if self.elements == 1 else T.reinterpret(f"int32x{elements // 2}", values)

    def as_operand(self, words: Expression, dtype: str, count: int) -> Expression:
        """``count`` words as a vector of ``dtype``: of a matrix instruction, or of memory."""
        return words if self.elements == 1 else T.reinterpret(f"{dtype}x{count * 2}", words)

    def loaded(self, inside: Expression, value: Expression) -> Expression:
        """A stored element as ``joined`` takes it: ``value`` if it is ``inside``, else 0."""
        if self.elements == 1:
            return T.if_then_else(inside, value, T.float32(0))
        return T.if_then_else(inside, T.reinterpret("uint16", value), T.uint16(0))

    def joined(self, parts: list[Expression]) -> Expression:
        """One word of elements: a float32, or the bits of two of 16 bits."""
        if self.elements == 1:
            return parts[0]
        low, high = (T.cast(part, "uint32") for part in parts)
        return T.reinterpret("int32", low | (high << T.uint32(16)))

    def element(self, word: Expression, e: int) -> Expression:
        """Element ``e`` of a word, as it is stored."""
        if self.elements == 1:
            return word
        bits = T.cast(T.reinterpret("uint32", word) >> T.uint32(16 * e), "uint16")
        return T.reinterpret(self.storage, bits)

    def rounded(self, values: list[Expression]) -> Expression:
        """One word of float32 values; to nearest, ties to even, NaN stays NaN."""
        if self.storage == "float32":
            return values[0]
        if self.storage == "float16":
            halves = [T.cast(value, "float16") for value in values]
            return self.joined([T.reinterpret("uint16", half) for half in halves])
        low, high = (_nearest_bfloat16(value) for value in values)
        return T.reinterpret("int32", (low >> T.uint32(16)) | (high & T.uint32(0xFFFF0000)))

    def widened(self, word: Expression, e: int) -> Expression:
        """Element ``e`` of a word in float32."""
        if self.storage == "float32":
            return word
        if self.storage == "float16":
            return T.cast(self.element(word, e), "float32")
        bits = T.reinterpret("uint32", word)
        high = bits & T.uint32(0xFFFF0000) if e else bits << T.uint32(16)
        return T.reinterpret("float32", high)


def _nearest_bfloat16(value: Expression) -> Expression:
    """Bits of a float32 whose upper half is the nearest bfloat16."""
    bits = T.reinterpret("uint32", value)
    nearest = bits + T.uint32(0x7FFF) + ((bits >> T.uint32(16)) & T.uint32(1))
    return T.Select(T.isnan(value), bits | T.uint32(0x400000), nearest)
