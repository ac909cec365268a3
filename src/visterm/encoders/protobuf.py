"""The few fields of a protocol buffer that somebody asks for, read and written without the package of the format."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def texts(message: memoryview, number: int) -> list[str]:
    """Return the contents of all fields of one number, as text."""
    return [bytes(part).decode() for part in parts(message, number)]


def parts(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the contents of all fields of one number that hold bytes; IndexError where the message breaks off."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise IndexError
            if number == wanted:
                yield message[at : at + length]
            at += length
        else:
            raise IndexError


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, and say where the next begins."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def field(number: int, content: bytes) -> bytes:
    """Write one field of bytes; numbers are below 16."""
    return bytes([number << 3 | _BYTES]) + _as_varint(len(content)) + content


def _as_varint(value: int) -> bytes:
    coded = bytearray()
    while value >= 0x80:
        coded.append(value & 0x7F | 0x80)
        value >>= 7
    coded.append(value)
    return bytes(coded)
