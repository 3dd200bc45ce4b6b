"""Lives of clients that lie, each in a process of its own: the server keeps what a living process may still read.

    python liar.py SOCKET LAYOUT_HASH SPEC...

For each line on standard input, which seeds its chance, one child lives and dies; then a line says so."""

import os
import pathlib
import random
import struct
import sys
import time
import types

from peers import ABANDON, BLOCKS, OPENED, PAGE, SEGMENT_ASK, STATUS, UP_HEAD, UP_RETURN_TAIL, UP_WAITING, Hostile, head


def hasty(client, chance, text):
    """Is away before it was answered."""
    client.send(client.open_message(text))
    time.sleep(chance.random() * 0.02)


def liar(client, chance, text):
    if client.open(text)[1] != OPENED:
        return
    returned = 0
    for _ in range(chance.randrange(1, 30)):
        time.sleep(chance.random() * 0.01)
        lie = chance.randrange(12)
        if lie < 6:
            while returned < client.tail() and chance.random() < 0.9:  # the truth, for a while
                place, generation = client.descriptor(returned)
                client.put_return(returned, generation << 32 | place)
                returned += 1
                client.publish(returned)
        elif lie == 6:
            at = chance.choice([UP_WAITING, UP_HEAD])
            client.up[at : at + 4] = chance.randbytes(4)
        elif lie == 7:
            client.send(head(chance.choice([BLOCKS, STATUS])))
        elif lie == 8:
            block = chance.choice([client.descriptor(0)[0] >> 16, chance.randrange(1 << 16)])
            client.send(head(SEGMENT_ASK) + struct.pack("<II", block, 0))
        elif lie == 9:
            client.send(head(ABANDON) + struct.pack("<Q", chance.choice([0, 1, 1 << 63])))
        elif lie == 10:
            client.put_return(returned, chance.getrandbits(64))
            client.publish(returned + chance.choice([1, 1, 2, 1 << 31]))
        else:
            at = chance.choice([0, UP_RETURN_TAIL, PAGE])
            client.up[at : at + 256] = chance.randbytes(256)
            client.wake()


def main():
    server = types.SimpleNamespace(socket=sys.argv[1])
    texts = [pathlib.Path(path).read_text() for path in sys.argv[3:]]
    for line in sys.stdin:
        chance = random.Random(line)
        child = os.fork()
        if child == 0:
            try:
                client = Hostile(server, int(sys.argv[2]))
                chance.choice([hasty, liar, liar])(client, chance, chance.choice(texts))
                if chance.random() < 0.5:
                    client.socket.close()
                    time.sleep(chance.random() * 0.2)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was found out
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


main()
