"""xxHash64 with seed 0, by which Envoy places a caller on the ring: a test can then say beforehand who is where.

https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, for inputs shorter than 32 bytes alone.
"""

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def xxh64(data: bytes) -> int:
    """Return the hash of fewer than 32 bytes."""
    assert len(data) < 32
    acc = (_P5 + len(data)) & _MASK
    while len(data) >= 8:
        lane = _rotl(int.from_bytes(data[:8], "little") * _P2 & _MASK, 31) * _P1 & _MASK
        acc = (_rotl(acc ^ lane, 27) * _P1 + _P4) & _MASK
        data = data[8:]
    if len(data) >= 4:
        acc = (_rotl(acc ^ int.from_bytes(data[:4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        data = data[4:]
    for byte in data:
        acc = _rotl(acc ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    for shift, prime in ((33, _P2), (29, _P3), (32, 1)):
        acc = (acc ^ acc >> shift) * prime & _MASK
    return acc


def _rotl(value: int, count: int) -> int:
    return (value << count | value >> (64 - count)) & _MASK
