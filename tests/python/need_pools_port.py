"""The need-pool sampler as a short executable model, with the generator and the ties of the C one.

Ids stand in pools keyed by (stratum, mask): the mask is the set of tasks that still need the id in their current epoch, the
stratum the set of tasks whose subset has it. Which pools a draw takes from, how many ids and for whom is need-pools' rule as it
is written down: `draw`, `_serves` and `_first` say it in full. The rest fixes what the rule leaves open, as the C does: how
equal pools are told apart, and in which order ids stand in a pool (it decides what a random place in it means).

Sets of tasks are bit masks. Shared order only: fixed orders choose nothing.
"""

import math
from dataclasses import dataclass, field

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
LEAF = 16


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


class Generator:
    def __init__(self, state):
        self.state = state

    def next(self):
        self.state = self.state + GOLDEN & WORD
        return mix(self.state)

    def below(self, n):
        return self.next() * n >> 64


class Permutation:
    def __init__(self, n, seed, epoch):
        self.n, self.a = n, max(2, math.isqrt(n - 1) + 1)
        self.a += self.a % 2
        self.b = -(-n // self.a)
        generator = Generator(mix(seed ^ mix(epoch + GOLDEN & WORD)))
        self.keys = [generator.next() for _ in range(24)]

    def at(self, x):
        while True:
            low, high = x % self.a, x // self.a
            for even, odd in zip(self.keys[::2], self.keys[1::2]):
                low = (low + ((mix(even ^ high) >> 32) * self.a >> 32)) % self.a
                high = (high + ((mix(odd ^ low) >> 32) * self.b >> 32)) % self.b
            x = high * self.a + low
            if x < self.n:
                return x


def bits(mask):
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


@dataclass
class Pool:
    stratum: int
    mask: int
    home: tuple
    ids: list = field(default_factory=list)


@dataclass
class Task:
    batch: int
    drop_last: bool
    ranks: int
    window: int
    epoch: int
    epochs: int
    subset: frozenset  # of ids
    part: int
    served: int
    over: bool = False
    got: int = 0       # ids of its epoch
    queued: list = field(default_factory=list)
    given: list = field(default_factory=list)
    first: list = field(default_factory=list)
    first_next: int = 0

    def begin(self):
        self.over = bool(self.epochs) and self.epoch >= self.epochs
        self.given = [0] * self.ranks
        self.first, self.first_next = [], 0

    def rank(self):
        """The rank with quota left that has the fewest samples queued."""
        left = [r for r in range(self.ranks) if self.given[r] < self.part and not self.over]
        return min(left, key=lambda r: (self.queued[r], self.given[r], r), default=None)


class NeedPools:
    def __init__(self, n, seed):
        self.n, self.seed, self.generator = n, seed, Generator(mix(seed))
        self.tasks = {}
        self.visits = [0] * n
        self.polarity = 0
        self.tag, self.tags = {0: 0}, 1       # stratum -> what it is hashed by
        self.wanted = {}                       # task -> ids of its epoch
        self.got = {}                          # (task, stratum) -> ids it got of it in its epoch
        self.records, self.free, self.at = [], [], {}
        self.size = {0: n}
        pool = self._find(0, 0)
        pool.ids = list(range(n))
        self.where = [pool] * n

    # --- the rule ---

    def draw(self, blocked):
        """Ids, targets, turns, flags; None while nobody is urgent."""
        queued = {t: task.queued[task.rank()] for t, task in self.tasks.items()
                  if not blocked >> t & 1 and task.rank() is not None}
        urgent = [t for t in sorted(queued) if queued[t] < self.tasks[t].window // 2]
        if not urgent:
            return None
        hungriest = min(urgent, key=lambda t: (queued[t], self.tasks[t].served))
        ready = sum(1 << t for t in queued if queued[t] < self.tasks[t].window)
        ids, flags, turns, v = [], [], [], 1 << hungriest
        if not self._needs_padding(hungriest):
            v = self._fill(hungriest, ready, ids)
            for t in bits(v):
                task = self.tasks[t]
                task.first += ids[:max(64, task.ranks) - len(task.first)]
        padded = []
        if v == 1 << hungriest and self._needs_padding(hungriest):
            task = self.tasks[hungriest]
            while len(ids) + len(padded) < self._most(hungriest, v):
                padded.append(task.first[task.first_next % len(task.first)])
                task.first_next += 1
        flags = [0] * len(ids) + [1] * len(padded)
        ids += padded
        for i in ids:
            turns.append(self.visits[i])
            self.visits[i] += 1
        return ids, self._deliver(v, len(ids)), turns, flags

    def _fill(self, hungriest, ready, ids):
        g = self.tasks[hungriest].batch
        options = [(pool, self._serves(pool, ready, g)) for pool in self.records if pool]
        options = [(pool, v) for pool, v in options if v >> hungriest & 1]
        pool, v = max(options, key=lambda o: (o[1].bit_count(), -(o[0].mask & ~o[1]).bit_count(), *self._larger(o[0])))
        most = self._most(hungriest, v)
        while pool and len(ids) < most:
            ids.append(self._take(pool, v))
            if not pool.ids or self._serves(pool, v, g) != v:
                if not pool.ids:
                    self._drop(pool)
                rest = [p for p in self.records if p and self._serves(p, ready, g) == v]
                pool = max(rest, key=lambda p: (-p.mask.bit_count(), *self._larger(p)), default=None)
        return v

    def _serves(self, pool, tasks, g):
        """Those of `tasks` that need the pool's ids and are not ahead of their share of its stratum."""
        stratum, v = pool.stratum, 0
        for t in bits(pool.mask & tasks):
            taken, wanted = self.tasks[t].got, self.wanted[t]
            if self.got.get((t, stratum), 0) * wanted < self.size[stratum] * taken + g * wanted:
                v |= 1 << t
        return v

    def _take(self, pool, v):
        k = self.generator.below(len(pool.ids))
        i = pool.ids[k]
        target = self._find(pool.stratum, pool.mask & ~v)
        self._move(i, k, pool, target)
        for t in bits(v):
            self.tasks[t].got += 1
            self.got[t, pool.stratum] = self.got.get((t, pool.stratum), 0) + 1
        return i

    # --- windows, batches, ranks ---

    def _most(self, hungriest, v):
        task = self.tasks[hungriest]
        most = task.batch
        if v == 1 << hungriest:
            most -= task.given[task.rank()] % task.batch
        return min([most] + [self.tasks[t].part - self.tasks[t].given[self.tasks[t].rank()] for t in bits(v)])

    def _needs_padding(self, t):
        return self.tasks[t].got == len(self.tasks[t].subset)

    def _deliver(self, v, n):
        targets = []
        for t in bits(v):
            task = self.tasks[t]
            r = task.rank()
            targets.append((t, r, task.epoch, task.given[r]))
            task.queued[r] += n
            task.given[r] += n
            task.served += n
            if task.rank() is None:
                self._next_epoch(t)
        self._sweep()
        return targets

    def _next_epoch(self, t):
        task = self.tasks[t]
        task.epoch += 1
        task.begin()
        if not task.over:
            self._need_all(t)
            return
        task.got = self.wanted[t]
        for pool in self.records:
            if pool:
                pool.mask &= ~(1 << t)
                self.got[t, pool.stratum] = self.size[pool.stratum]

    def back(self, t, rank, count):
        queued = self.tasks[t].queued
        queued[rank] -= min(count, queued[rank])

    def abandon(self, t):
        task = self.tasks[t]
        if any(task.given) and not task.over:
            self._next_epoch(t)
            self._sweep()
        return task.epoch

    # --- who comes and goes ---

    def join(self, batch, drop_last=False, ranks=1, window=3, first_epoch=0, epochs=0, subset=None):
        """The task's number; None where its epochs would have no batch."""
        everything = frozenset(range(self.n))
        subset = everything if subset is None else frozenset(subset)
        part = len(subset) // ranks // batch * batch if drop_last else -(-len(subset) // ranks)
        if not part:
            return None
        t = next(t for t in range(64) if t not in self.tasks)
        served = min((task.served for task in self.tasks.values()), default=0)
        equal = [u for u in self.tasks if self.tasks[u].subset == subset]
        task = self.tasks[t] = Task(batch, drop_last, ranks, max(window * batch, 128), first_epoch, epochs, subset, part, served)
        task.queued = [0] * ranks
        task.begin()
        if subset == everything or equal:
            of = sum(1 << u for u in equal) if subset != everything else 0
            self._members(lambda s: s | 1 << t if not of or s & of else s)
            self._need_all(t)
        else:
            self._arrive(t)
        self._sweep()
        return t

    def leave(self, t):
        del self.tasks[t]
        for pool in self.records:
            if pool:
                pool.mask &= ~(1 << t)
        self._members(lambda s: s & ~(1 << t))
        self.polarity &= ~(1 << t)
        self.got = {key: n for key, n in self.got.items() if key[0] != t}
        self._sweep()

    def _members(self, change):
        """Strata change their members; those that become equal become one."""
        tag, size, got = {}, {}, {}
        for s in self.tag:
            if self.size[s]:
                tag.setdefault(change(s), self.tag[s])
                size[change(s)] = size.get(change(s), 0) + self.size[s]
        for (t, s), n in self.got.items():
            if self.size[s]:
                got[t, change(s)] = got.get((t, change(s)), 0) + n
        self.tag, self.size, self.got = tag, size, got
        self.wanted = {t: sum(size[s] for s in size if s >> t & 1) for t in self.tasks}
        for pool in self.records:
            if pool:
                pool.stratum = change(pool.stratum)

    def _arrive(self, t):
        """The ids of a subset of its own come one by one, in a permuted order of their words."""
        words = Permutation(-(-self.n // 64), self.seed, t)
        for w in range(words.n):
            word = words.at(w)
            for i in range(64 * word, 64 * word + 64):
                if i not in self.tasks[t].subset:
                    continue
                source = self.where[i]
                stratum = source.stratum | 1 << t
                if stratum not in self.tag:
                    self.tag[stratum], self.size[stratum] = self.tags, 0
                    self.tags += 1
                target = self._find(stratum, source.mask | 1 << t)
                self._move(i, source.ids.index(i), source, target)
                for u in bits(source.stratum & ~source.mask):
                    self.got[u, source.stratum] -= 1
                    self.got[u, stratum] = self.got.get((u, stratum), 0) + 1
                self.size[source.stratum] -= 1
                self.size[stratum] += 1
                if not source.ids:
                    self._drop(source)
        self._members(lambda s: s)

    # --- how ids stand in pools, and pools among each other ---

    def _larger(self, pool):
        """Ties: the larger pool, then the one of the smallest mask and stratum."""
        return len(pool.ids), -pool.mask, -pool.stratum

    def _home(self, stratum, mask):
        return self.tag[stratum], mask ^ self.polarity & stratum

    def _find(self, stratum, mask):
        home = self._home(stratum, mask)
        for pool in self.records:
            if pool and pool.home == home and (pool.stratum, pool.mask) == (stratum, mask):
                return pool
        pool = Pool(stratum, mask, home)
        if self.free:
            self.records[self.free.pop()] = pool
        else:
            self.records.append(pool)
        return pool

    def _drop(self, pool):
        record = next(r for r, p in enumerate(self.records) if p is pool)
        self.records[record] = None
        self.free.append(record)

    def _move(self, i, k, source, target):
        source.ids[k] = source.ids[-1]
        source.ids.pop()
        target.ids.append(i)
        self.where[i] = target

    def _need_all(self, t):
        for pool in self.records:
            if pool and pool.stratum >> t & 1:
                pool.mask |= 1 << t
        self.polarity ^= 1 << t
        self.tasks[t].got = 0
        for stratum in self.tag:
            self.got[t, stratum] = 0

    def _sweep(self):
        """Joins pools whose keys became equal: the smaller goes into the other."""
        for record in range(len(self.records)):
            pool = self.records[record]
            while pool:
                home = self._home(pool.stratum, pool.mask)
                others = [p for p in self.records if p and p is not pool and p.home == home
                          and (p.stratum, p.mask) == (pool.stratum, pool.mask)]
                if not others:
                    pool.home = home
                    break
                smaller = len(pool.ids) <= len(others[0].ids)
                source, target = (pool, others[0]) if smaller else (others[0], pool)
                self._pour(source, target)
                self._drop(source)
                if smaller:
                    break

    def _pour(self, source, target):
        while source.ids:
            n = LEAF if len(source.ids) % LEAF == 0 else 1
            place = len(target.ids) // LEAF * LEAF if n == LEAF else len(target.ids)
            target.ids[place:place] = source.ids[-n:]
            for i in source.ids[-n:]:
                self.where[i] = target
            del source.ids[-n:]
