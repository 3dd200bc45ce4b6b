"""What can go wrong, as exceptions. All are forebay.Error; its text says what, where, what was expected, what to do."""

from __future__ import annotations

import builtins
from typing import Dict, Type

__all__ = [
    "AccessError",
    "ClosedError",
    "EndError",
    "Error",
    "ForkedError",
    "FullError",
    "MemoryLimitError",
    "NoServerError",
    "NotSupportedError",
    "ProtocolError",
    "SampleError",
    "ServerLost",
    "SpecError",
    "TimeoutError",
    "VersionError",
    "WindowError",
    "from_status",
]


class Error(Exception):
    """Anything that Forebay refuses or fails at. `code` is the C API's fby_status."""

    code: int = 0


class SpecError(Error, ValueError):
    """A spec, an argument's value, a state or a file list is wrong: the text names the key, what was expected and the nearest valid name,
    and the line where there was a file."""


class MemoryLimitError(Error, MemoryError):
    """Memory, or the part of it that the server may use, is short; running tasks are untouched."""


class SampleError(Error):
    """A sample can't be read or decoded, and on_error is "fail"; the text names the file. `sample` is its id."""

    sample: int = 0


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001  the builtin's name, and a kind of it
    """Nothing came in time. Nothing is lost: the call may be repeated."""


class ServerLost(Error, ConnectionError):
    """The server is gone: its process was `pid`, killed by `signal` where the kernel tells (else 0)."""

    pid: int = 0
    signal: int = 0


class NoServerError(Error, ConnectionError):
    """No server answers where one was asked for, by socket=, mode="running" or $FOREBAY_SOCKET."""


class FullError(Error):
    """The server has no room for another task."""


class WindowError(Error):
    """Every batch of the window is still held, so none can come."""


class EndError(Error):
    """All epochs that the Loader was opened for are over."""


class VersionError(Error):
    """Client and server, or a file and this version, don't fit together."""


class AccessError(Error, PermissionError):
    """The server belongs to another user, or a permission is missing."""


class ForkedError(Error, RuntimeError):
    """The Loader belongs to the process that forked this one."""


class ClosedError(Error, ValueError):
    """The Loader was closed, or the server closed its side."""


class NotSupportedError(Error, NotImplementedError):
    """Valid, but not in this version or not on this machine."""


class ProtocolError(Error):
    """The server broke the protocol."""


# include/forebay/error.h. FBY_EIO (-3) and FBY_EINTR (-14) have no class of their own.
_CLASSES: Dict[int, Type[Error]] = {
    -1: SpecError,
    -2: MemoryLimitError,
    -4: SampleError,
    -5: TimeoutError,
    -6: ServerLost,
    -7: FullError,
    -8: WindowError,
    -9: EndError,
    -10: VersionError,
    -11: AccessError,
    -12: ForkedError,
    -13: ClosedError,
    -15: NotSupportedError,
    -16: ProtocolError,
}


def from_status(code: int, text: str, pid: int = 0, signal: int = 0, sample: int = 0) -> Error:
    """The exception for a status of the C API; the extension calls this."""
    error = _CLASSES.get(code, Error)(text)
    error.code = code
    if isinstance(error, ServerLost):
        error.pid = pid
        error.signal = signal
    if isinstance(error, SampleError):
        error.sample = sample
    return error
