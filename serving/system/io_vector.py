"""struct iovec, which system calls take. Imports little."""

import ctypes


class IoVector(ctypes.Structure):
    """struct iovec (readv(2)): a region of memory."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))
