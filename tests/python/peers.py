"""Both ends of the socket spoken byte by byte, so that tests can say what no proper client and no proper server would."""

import array
import fcntl
import mmap
import os
import re
import socket
import struct
import threading

MAGIC, VERSION = 0x46425930, 1
HELLO, WELCOME, FAILED, OPEN, PROGRESS, OPENED, ABANDON, ABANDONED, TASK_FAILED, STATUS, STATUS_REPLY = range(1, 12)
SEGMENT_ASK, SEGMENT_REPLY, BLOCKS, BLOCKS_REPLY, AWAITS, AWAITS_REPLY = range(12, 18)
PAGE = 4096
# Words of the regions, as ringbuf/layout.h has them.
DOWN_TAIL, DOWN_CAPACITY, DOWN_GONE = 128, 384, 388
UP_WAITING, UP_RETURN_TAIL, UP_HEAD = 128, 256, 384
REGION_MAGIC = 0x79616265726F66
SEGMENT, DOWN, UP = 1, 2, 3
SEALS_SERVER = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 0x10  # F_SEAL_FUTURE_WRITE
SEALS_CLIENT = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def head(kind, text_bytes=0, version=VERSION, magic=MAGIC):
    return struct.pack("<4I", magic, kind, version, text_bytes)


def hello(layout_hash, version=VERSION):
    return head(HELLO, version=version) + struct.pack("<QII128Q", layout_hash, os.getpid(), 0, *[(1 << 64) - 1] * 128)


def layout_hash_of(server):
    """What the server answers to a greeting that has it wrong."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(server.socket))
        client.send(hello(0))
        return int(re.search(rb"memory layout ([0-9a-f]{16})", client.recv(4096)).group(1), 16)


class Hostile:
    """A client that may say anything: its socket, and what OPENED brought."""

    def __init__(self, server, layout_hash, greet=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(server.socket))  # first: with a time limit, a full queue would be an error
        self.socket.settimeout(20)
        self.fds = []
        if greet:
            self.send(hello(layout_hash))
            assert self.receive()[1] == WELCOME

    def send(self, message):
        self.socket.send(message)

    def receive(self):
        """(bytes, type) of the next message; (b"", None) at the end."""
        try:
            message, controls, _, _ = self.socket.recvmsg(1 << 17, 1024)
        except ConnectionResetError:
            return b"", None
        for level, kind, data in controls:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            self.fds += array.array("i", data).tolist()
        return message, struct.unpack_from("<I", message, 4)[0] if message else None

    def ended(self):
        """True once the server has closed; what it still said is passed over."""
        while True:
            message, _ = self.receive()
            if not message:
                return True

    def open_message(self, text, base="/"):
        parts = [b"hostile", base.encode(), text.encode()]
        return head(OPEN, sum(map(len, parts))) + struct.pack("<6I", *map(len, parts), 0, 0, 0) + b"".join(parts)

    def open(self, text, fds=()):
        """`fds`: what comes with the message: a state, or what isn't one."""
        send_with(self.socket, self.open_message(text), fds)
        while True:
            message, kind = self.receive()
            if kind != PROGRESS:
                break
        if kind == OPENED:
            down, up, self.event = self.fds[:3]
            self.down = mmap.mmap(down, os.fstat(down).st_size, prot=mmap.PROT_READ)
            self.up = mmap.mmap(up, os.fstat(up).st_size)
            self.return_capacity = struct.unpack_from("<4I7Q14I", message)[4 + 7 + 10]
        return message, kind

    def tail(self):
        return struct.unpack_from("<I", self.down, DOWN_TAIL)[0]

    def descriptor(self, number):
        """(place, generation) of what was delivered as the number-th."""
        capacity = struct.unpack_from("<I", self.down, DOWN_CAPACITY)[0]
        block, generation, run = struct.unpack_from("<2IQ", self.down, PAGE + number % capacity * 16)
        return block << 16 | run & 0xFFFF, generation

    def flags(self, number):
        """The flags of what was delivered as the number-th."""
        capacity = struct.unpack_from("<I", self.down, DOWN_CAPACITY)[0]
        return struct.unpack_from("<Q", self.down, PAGE + number % capacity * 16 + 8)[0] >> 32 & 0xFF

    def put_return(self, place, word):
        struct.pack_into("<Q", self.up, PAGE + place % self.return_capacity * 8, word & ((1 << 64) - 1))

    def publish(self, tail):
        struct.pack_into("<I", self.up, UP_RETURN_TAIL, tail & 0xFFFFFFFF)
        self.wake()

    def wake(self):
        os.write(self.event, struct.pack("<Q", 1))

    def close(self):
        self.socket.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class FakeServer:
    """Answers each connection by `script`, a function of the connection."""

    def __init__(self, path, script):
        self.script = script
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.socket = path
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        connection.settimeout(20)
        with connection:
            try:
                self.script(connection)
                while connection.recv(1 << 17):
                    pass
            except OSError:
                pass  # its client is gone, or the script has closed it

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.socket)
        self.thread.join(30)


def send_with(connection, message, fds=()):
    controls = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
    connection.sendmsg([message], controls)


def region(kind, layout_hash, size, body=b"", seals=None, magic=REGION_MAGIC, version=1, says=None):
    """A memfd as a server makes them; each argument may be wrong."""
    fd = os.memfd_create("fake", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    os.pwrite(fd, struct.pack("<QIIQQ", magic, version, kind, layout_hash, size if says is None else says), 0)
    if body:
        os.pwrite(fd, body, 64)
    if seals is None:
        seals = SEALS_CLIENT if kind == UP else SEALS_SERVER
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
