"""Several training tasks at once as one side of a comparison, each a process with a loader of its own, or fed by one that all share:
perf/share/share.c in Python. Standard library only: every peer imports it, and so does our own Python side."""

import ctypes
import json
import multiprocessing
import os
import pathlib
import sys
import time

from side import cpu_clock

WARM_BATCHES = 3  # of each task, before a turn is measured: more than a loader has made ahead
LOOK_S = 0.002


class Board:
    """What the asking process and the tasks share: plain memory, each word with one writer."""

    def __init__(self, context, tasks):
        self.running = context.RawValue(ctypes.c_int32, 0)
        self.samples = context.RawArray(ctypes.c_int64, tasks)
        self.batches = context.RawArray(ctypes.c_int64, tasks)
        self.parked = context.RawArray(ctypes.c_int32, tasks)
        self.servers = context.RawArray(ctypes.c_int32, tasks)
        self.gates = [context.Semaphore(0) for _ in range(tasks)]


def train(open_loader, arguments, board, index):
    """A task's process. open_loader(index, *arguments) returns take, which returns the samples of the next batch, and the process
    of the server that works for it, or 0."""
    take = None
    parent = os.getppid()
    while True:
        if not board.running.value:
            board.parked[index] = 1
            while not board.gates[index].acquire(timeout=1):
                if os.getppid() != parent:
                    return
            board.parked[index] = 0
            if board.running.value < 0:
                return
        if take is None:
            take, board.servers[index] = open_loader(index, *arguments)
        board.samples[index] += take()
        board.batches[index] += 1


def descendants(process):
    """Its children, theirs, and so on."""
    found = []
    for children in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        try:
            for child in children.read_text().split():
                found += [int(child), *descendants(int(child))]
        except OSError:  # that thread is gone
            continue
    return found


def look(board):
    """(samples taken, wall, cpu) of now; CPU seconds of every process below this one, and of servers."""
    samples, wall, cpu = sum(board.samples), time.monotonic(), 0.0
    for process in {*descendants(os.getpid()), *board.servers} - {0}:
        try:
            cpu += cpu_clock(process)
        except OSError:  # gone since
            continue
    return samples, wall, cpu


def serve(open_loader, count, batches, arguments=(), context=None, helpers=()):
    """Answers turns: `batches` batches of each of `count` tasks on average, in the middle of their streams. helpers: other
    processes without which the tasks would wait for ever."""
    context = context or multiprocessing.get_context("spawn")
    board = Board(context, count)
    tasks = [context.Process(target=train, args=(open_loader, arguments, board, index)) for index in range(count)]
    for task in tasks:
        task.start()

    def wait(done):
        while not done():
            time.sleep(LOOK_S)
            if all(process.is_alive() for process in (*tasks, *helpers)):
                continue
            for process in (*tasks, *helpers):
                process.terminate()
            sys.exit("a task ended")

    for line in sys.stdin:
        if line != "go\n":
            break
        before = list(board.batches)
        board.running.value = 1
        for gate in board.gates:
            gate.release()
        wait(lambda: all(now >= then + WARM_BATCHES for now, then in zip(board.batches, before)))
        start, enough = look(board), sum(board.batches) + batches * count
        wait(lambda: sum(board.batches) >= enough)
        end = look(board)
        board.running.value = 0
        print(json.dumps({"samples": end[0] - start[0], "wall": end[1] - start[1], "cpu": end[2] - start[2]}), flush=True)
        wait(lambda: all(board.parked))
    board.running.value = -1
    for gate in board.gates:
        gate.release()
    for task in tasks:
        task.join(10)
        if task.is_alive():
            task.terminate()
