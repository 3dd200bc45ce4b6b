"""forebay.Loader: a data set, a pipeline, and epochs of batches to iterate over."""

from __future__ import annotations

import gc
import json
import math
import os
import weakref
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple, Type, Union

from forebay import _forebay, launch
from forebay._forebay import PADDED, REPEAT, SUBSTITUTE, Tensor
from forebay.errors import EndError, Error, NoServerError, ServerLost, SpecError, WindowError
from forebay.names import did_you_mean, in_arguments, one_of, refuse_unknown

__all__ = ["PADDED", "REPEAT", "SUBSTITUTE", "Batch", "Epoch", "Loader"]

Path = Union[str, "os.PathLike[str]"]
Op = Union[str, Mapping[str, Any]]

_MODES = {"auto": _forebay.AUTO, "running": _forebay.RUNNING, "embedded": _forebay.EMBEDDED}
_STATE_VERSION = 1
_NOTICE_S = 30.0  # of waiting for a rank that hasn't come, until a warning
_SPEC_ENDINGS = (".yaml", ".yml", ".json")
SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "forebay")


class Batch(Tuple[Tensor, Tensor]):
    """`(images, labels)`, and what else is known of the samples.

    `images` lies in shared memory and holds one batch of the Loader's window for as long as anybody looks at it. Labels, ids and flags
    are small copies that hold nothing.
    """

    ids: Tensor
    """Each sample's place in the data set."""
    flags: Tensor
    """Each sample's flags: PADDED, REPEAT, SUBSTITUTE, or-ed."""
    epoch: int
    index: int  # type: ignore[assignment]  # hides the method that every tuple has
    """Of the batch within its epoch."""
    last: bool
    """Whether the epoch ends with this batch."""

    def __new__(cls, images: Tensor, labels: Tensor) -> "Batch":
        return tuple.__new__(cls, (images, labels))

    @property
    def images(self) -> Tensor:
        return self[0]

    @property
    def labels(self) -> Tensor:
        return self[1]

    def __reduce__(self) -> Any:
        raise TypeError("a batch lies in shared memory and can't be pickled: copy what you need with numpy.array()")

    def __repr__(self) -> str:
        return f"<forebay.Batch {self.index} of epoch {self.epoch}: {self[0]!r}>"


class Epoch(Iterator[Batch]):
    """One epoch's batches. Dropped or closed before its end, it gives the rest of the epoch up."""

    def __init__(self, loader: "Loader") -> None:
        self._loader: Optional[Loader] = loader
        self._begun = False
        self._over = False
        self._why = "this epoch was given up"

    def __iter__(self) -> "Epoch":
        return self

    def __next__(self) -> Batch:
        if self._over:
            raise StopIteration
        if self._loader is None:
            raise Error(self._why)
        batch = self._loader._next()
        self._begun = True
        if batch.last:
            self._over = True
            self._loader = None
        return batch

    def close(self) -> None:
        """Gives up what is left of the epoch: the next iter() starts the next one."""
        self._close("this epoch was given up")

    def _close(self, why: str) -> None:
        loader, self._loader = self._loader, None
        self._why = why
        if loader is not None and self._begun:
            loader._abandon()

    def __del__(self) -> None:
        # Also while the interpreter ends, or after the Loader's end: there is nobody left to tell.
        try:
            self.close()
        except Exception:
            pass

    def __reduce__(self) -> Any:
        raise TypeError("an epoch under way can't be pickled: open the Loader in the process that uses it")


class Loader:
    """Batches of a data set, an epoch for each iter().

    `dataset` is a folder of class folders, `{"list": file}`, or, instead of all that describes the task, a spec: a path that ends in
    .yaml, .yml or .json, or a dict with the key "dataset". Everything that describes the task means what the key of that name in a spec
    means.

    split         which samples an epoch has: {"part": 0.8, "seed": 1}, and {"part": [0.8, 1], "seed": 1} for the rest; {"ids": file};
                  {"classes": [name, ...]}. None: all.
    order         "shared": samples in whatever order lets all tasks of the machine share the work; "strict": the permutation
                  of (seed, epoch), reproducible to the byte; "sequential".
    steps_per_epoch  with {"echo": {"factor": "auto"}} in the pipeline: batches of an epoch, for each rank. Several ranks need it.
    batch_echo    how often whole batches are delivered, or {"factor": 2, "buffer": 8}. `echo` in the pipeline emits samples again.
    window        batches that may be held, under way and being filled at once; None: 4, and more with an echo. Holding them all is
                  a WindowError.
    on_error      "fail", or "skip": a bad sample is replaced, up to `max_errors` (a ratio or a count).
    ranks, rank   how many processes share this task's epochs, each getting an equal part, and which of them this is; ranks="auto": as
                  the launcher says (torchrun, Open MPI, PMIx, PMI, Slurm). All hand in the same arguments; batches come once all
                  are there, and a RuntimeWarning says who is missing after half a minute.
    job           a text that tells this job's ranks from those of others with the same arguments at the same time, the same for all of
                  them; None: as the launcher says, where the rank comes from it.
    timeout       seconds that a batch may take before TimeoutError; None: no limit. The call may be repeated.
    writable      batches are private copies that the program may write to and keep as long as it likes.
    socket, mode  which server: "auto" takes a running one, else starts one; "running"; "embedded".
    reconnect     seconds to wait for the successor of a server that is gone: an embedded one is started again, and the epoch goes on
                  where it was, within the same next(). 0: not at all; None: $FOREBAY_RECONNECT, else 30.

    state_dict() and load_state_dict() save where it is and go on from there, in another process and on another server.

    One thread at a time uses a Loader; close() may be called from any. It can be neither pickled nor used in a forked child: open
    one there instead, which costs little, the server is shared.
    """

    def __init__(
        self,
        dataset: Union[Path, Mapping[str, Any], None] = None,
        pipeline: Optional[Sequence[Op]] = None,
        batch_size: int = 64,
        epochs: Optional[int] = None,
        order: str = "shared",
        seed: int = 0,
        augment_seed: int = 0,
        drop_last: bool = False,
        batch_echo: Union[float, Mapping[str, Any], None] = None,
        window: Optional[int] = None,
        on_error: str = "fail",
        max_errors: Optional[float] = None,
        sample_timeout: Optional[float] = None,
        ranks: Union[int, str] = 1,
        rank: Optional[int] = None,
        *,
        steps_per_epoch: Optional[int] = None,
        job: Optional[str] = None,
        timeout: Optional[float] = None,
        writable: bool = False,
        socket: Optional[Path] = None,
        mode: str = "auto",
        reconnect: Optional[float] = None,
        split: Union[str, Mapping[str, Any], None] = None,
        spec: Union[str, "os.PathLike[str]", Mapping[str, Any], "_SpecFile", None] = None,
        **unknown: NoReturn,
    ) -> None:
        self._task: Optional[_forebay.Task] = None
        refuse_unknown("Loader", Loader.__init__, unknown)
        self._current: Optional["weakref.ref[Epoch]"] = None
        self._epoch = 0
        self._timeout = _check_timeout(timeout)
        if mode not in _MODES:
            raise SpecError(f"mode: {mode!r}; expected {one_of(_MODES)}{did_you_mean(mode, _MODES)}")

        rank, ranks, job = _place(rank, ranks, job)
        given = {
            "batch": {"size": batch_size, "drop_last": drop_last, **({} if batch_echo is None else {"echo": batch_echo})},
            "split": split,
            "epochs": epochs,
            "steps_per_epoch": steps_per_epoch,
            "order": order,
            "seed": seed,
            "augment_seed": augment_seed,
            "window": window,
            "on_error": on_error,
            "max_errors": max_errors,
            "sample_timeout": sample_timeout,
            "ranks": ranks,
        }
        arguments = _source(dataset, pipeline, spec, given)
        if socket is not None:
            arguments["socket"] = os.fsencode(socket)
        if os.path.exists(SERVER):
            arguments["server"] = os.fsencode(SERVER)
        if reconnect is not None:
            arguments["reconnect"] = _check_seconds("reconnect", reconnect)
        self._made = "spec" in arguments and not isinstance(spec, str)  # the spec's text is ours: no line of it was seen
        self._arguments: Dict[str, Any] = {"mode": _MODES[mode], "writable": bool(writable), "rank": rank, "job": job,
                                           "notice": _NOTICE_S, **arguments}
        self._task = self._open()
        self._info: Dict[str, Any] = self._task.info
        self._classes: Tuple[str, ...] = self._task.classes()

    @classmethod
    def from_spec(
        cls,
        path: Path,
        *,
        rank: Optional[int] = None,
        job: Optional[str] = None,
        timeout: Optional[float] = None,
        writable: bool = False,
        socket: Optional[Path] = None,
        mode: str = "auto",
        reconnect: Optional[float] = None,
        **unknown: NoReturn,
    ) -> "Loader":
        """A Loader of what a spec file describes; paths in it are relative to its folder."""
        refuse_unknown("Loader.from_spec", cls.from_spec, unknown)
        return cls(spec=_SpecFile(path), rank=rank, job=job, timeout=timeout, writable=writable, socket=socket, mode=mode,
                   reconnect=reconnect)

    def _open(self, **more: Any) -> "_forebay.Task":
        try:
            return _forebay.Task(**self._arguments, **more)
        except SpecError as error:
            if not self._made:
                raise
            raise _like(error, in_arguments(str(error))) from None
        except ServerLost as error:
            if error.pid:
                raise
            raise _like(error, str(error), NoServerError) from None

    # --- iterating ---------------------------------------------------------------------------------------------

    def __iter__(self) -> Epoch:
        """Starts the next epoch; one under way is given up."""
        self._use()
        current = self._current() if self._current is not None else None
        if current is not None:
            current._close("this epoch was given up when iter() started the next one")
        epoch = Epoch(self)
        self._current = weakref.ref(epoch)
        return epoch

    def __len__(self) -> int:
        """Batches of an epoch, exactly. With echo's factor auto that can't be told without steps_per_epoch: TypeError."""
        if not self._info["batches"]:
            raise TypeError("with echo: {factor: auto} an epoch has as many batches as there is time for: expected steps_per_epoch, or a factor, where len() is asked for")
        return int(self._info["batches"])

    def _next(self) -> Batch:
        task = self._use()
        try:
            parts = task.next(self._timeout)
        except WindowError:
            # What a cycle of garbage holds can be had back.
            gc.collect()
            try:
                parts = task.next(self._timeout)
            except WindowError as error:
                raise _window_error(self._info["window"], error) from None
        except EndError as error:
            epochs = self._info["epochs"]
            raise _like(error, f"all {epochs} epochs that this Loader was opened for are over: open another, or leave out "
                               "`epochs`") from None
        images, labels, ids, flags, epoch, index, last = parts
        batch = Batch(images, labels)
        batch.ids = ids
        batch.flags = flags
        batch.epoch = epoch
        batch.index = index
        batch.last = last
        self._epoch = epoch + 1 if last else epoch
        return batch

    def _abandon(self) -> None:
        task = self._task
        if task is not None and not task.closed and not task.foreign:
            self._epoch += 1
            task.abandon()

    def _use(self) -> "_forebay.Task":
        if self._task is None:
            raise Error("this Loader was never opened")
        return self._task

    @property
    def timeout(self) -> Optional[float]:
        """Seconds that a batch may take; None: no limit."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: Optional[float]) -> None:
        self._timeout = _check_timeout(seconds)

    # --- going on later --------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Where this Loader is, after all batches that it has given: to be saved with the model, by pickle or torch.save.

        The batches that come after are those of a Loader of the same arguments that was given this by load_state_dict(): in a fixed
        order the same to the last bit; in shared order the samples that the epoch still lacks, each once, whose random ops draw afresh.
        """
        return {"version": _STATE_VERSION, "epoch": self._epoch, "task": self._use().state()}

    def load_state_dict(self, state_dict: Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]) -> None:
        """Goes on where state_dict() was called: the next iter() gives what was left of that epoch. Data set, split, order, batch
        size and pipeline must be what they were, and in strict order the seed, or a SpecError says what isn't, and nothing has changed.

        Each of several ranks gives what it saved itself. With another number of ranks, or another batch size, every one gives a list
        of what all ranks saved after the same batch: what was left of that epoch is dealt to them in equal parts."""
        all_ranks = not isinstance(state_dict, Mapping)
        states = list(state_dict) if all_ranks and isinstance(state_dict, Sequence) else [state_dict]
        if not states or not all(map(_is_state, states)):
            raise SpecError("load_state_dict: expected what Loader.state_dict() gave, or a list of what it gave on each rank")
        for state in states:
            if state["version"] != _STATE_VERSION:
                raise SpecError(f"load_state_dict: this is of version {state['version']!r}, expected {_STATE_VERSION}: load it with "
                                 "the version of forebay that saved it")
        before = self._use()
        current = self._current() if self._current is not None else None
        saved = _forebay.merge_states([state["task"] for state in states]) if all_ranks else states[0]["task"]
        task = self._open(state=saved)
        if current is not None:
            current._loader = None
            current._why = "this epoch ended when load_state_dict() took its Loader elsewhere"
        self._current = None
        self._task = task
        self._epoch = int(states[0]["epoch"])
        before.close()

    # --- what it delivers ------------------------------------------------------------------------------------------

    @property
    def classes(self) -> Tuple[str, ...]:
        """The names of the labels; empty where they are plain numbers."""
        return self._classes

    @property
    def batch_size(self) -> int:
        return int(self._info["batch"])

    @property
    def shape(self) -> Tuple[int, ...]:
        """Of one sample."""
        return tuple(self._info["shape"])

    @property
    def dtype(self) -> str:
        return str(self._info["dtype"])

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to, as far as this Loader can tell."""
        return self._epoch

    @property
    def epochs(self) -> Optional[int]:
        """How many there are; None: no limit."""
        return self._info["epochs"] or None

    @property
    def samples(self) -> int:
        """Samples of an epoch."""
        return int(self._info["samples"])

    @property
    def window(self) -> int:
        return int(self._info["window"])

    @property
    def server_pid(self) -> int:
        return self._use().server_pid

    def status(self) -> Dict[str, Any]:
        """What the server is doing. "loader" says how many of this Loader's batches had to be copied into one piece."""
        task = self._use()
        status: Dict[str, Any] = json.loads(task.status())
        status["loader"] = {"gathered": task.gathered}
        return status

    # --- ending ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the subscription, and a wait in another thread. What a program still looks at stays readable, and holds the
        subscription until it lets go."""
        if self._task is not None:
            self._task.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._task is None or self._task.closed:
            return "<forebay.Loader, closed>"
        return (f"<forebay.Loader: {self._info['samples']} samples in {self._info['batches'] or '?'} batches of {self.batch_size}, "
                f"{self.dtype} {self.shape}>")

    def __reduce__(self) -> Any:
        raise TypeError("a Loader can't be pickled or sent to another process: open one there (the server is shared, so "
                        "no work is done twice)")


def _is_state(state: Any) -> bool:
    return (isinstance(state, Mapping) and {"version", "epoch", "task"} <= set(state)
            and isinstance(state["epoch"], int) and isinstance(state["task"], bytes))


# --- from arguments to a spec ----------------------------------------------------------------------------------------


class _SpecFile:
    def __init__(self, path: Path) -> None:
        self.path = path


def _source(dataset: Any, pipeline: Any, spec: Any, given: Dict[str, Any]) -> Dict[str, Any]:
    """What _forebay.Task is told of the task: a spec's path, or its text with a name and a base folder."""
    if spec is not None and dataset is not None:
        raise TypeError("Loader: give a data set or a spec, not both")
    if spec is None:
        if dataset is None:
            raise TypeError("Loader: expected a data set, or spec=")
        if isinstance(dataset, Mapping) and "dataset" in dataset:
            spec = dataset
        elif not isinstance(dataset, Mapping) and pipeline is None and os.fspath(dataset).endswith(_SPEC_ENDINGS):
            spec = _SpecFile(dataset)
    if spec is not None:
        if pipeline is not None or given != _DEFAULTS:
            names = ["pipeline"] if pipeline is not None else []
            names += [key for key, value in given.items() if value != _DEFAULTS[key]]
            raise TypeError(f"Loader: {', '.join(names)}: a spec says all of the task, so it has to say this too")
        if isinstance(spec, os.PathLike):
            spec = _SpecFile(spec)
        if isinstance(spec, _SpecFile):
            return {"spec_path": os.fsencode(spec.path)}
        return {"spec": spec if isinstance(spec, str) else _text(spec), "name": "spec"}
    if pipeline is None:
        raise TypeError('Loader: expected pipeline=[...], for example ["decode", {"random_resized_crop": 224}, "to"]')

    if isinstance(pipeline, (str, Mapping)):
        raise TypeError(f"pipeline: {pipeline!r}; expected a list of ops, [{pipeline!r}, ...]")

    arguments: Dict[str, Any] = {"name": "Loader"}
    if not isinstance(dataset, Mapping):
        path = os.fsencode(dataset)
        try:
            dataset = path.decode()
        except UnicodeDecodeError:
            # A spec is text; the base folder may be any bytes.
            dataset, arguments["base"] = ".", path
            if isinstance(given["split"], Mapping) and "ids" in given["split"]:
                given["split"] = {**given["split"], "ids": os.path.abspath(given["split"]["ids"])}
    whole = {"dataset": dataset, **given, "pipeline": [_op(op, place) for place, op in enumerate(pipeline)]}
    if given["sample_timeout"] is not None:
        whole["sample_timeout"] = _duration(given["sample_timeout"])
    whole = {key: value for key, value in whole.items() if value is not None}
    arguments["spec"] = _text(whole)
    return arguments


_DEFAULTS: Dict[str, Any] = {
    "batch": {"size": 64, "drop_last": False},
    "split": None,
    "epochs": None,
    "steps_per_epoch": None,
    "order": "shared",
    "seed": 0,
    "augment_seed": 0,
    "window": None,
    "on_error": "fail",
    "max_errors": None,
    "sample_timeout": None,
    "ranks": 1,
}


def _op(op: Any, place: int) -> Any:
    if isinstance(op, str):
        return op
    if isinstance(op, Mapping) and len(op) == 1:
        return dict(op)
    if callable(op) and getattr(op, "__module__", None) == "forebay.ops":
        return op.__name__
    raise TypeError(f"pipeline[{place}]: {op!r} is no op: expected a name, {{name: parameters}}, or forebay.ops.NAME(...)")


def _duration(seconds: Any) -> str:
    if isinstance(seconds, str):
        return seconds
    return f"{max(1, round(_check_seconds('sample_timeout', seconds) * 1000))}ms"


def _text(spec: Mapping[str, Any]) -> str:
    """YAML: JSON is a part of it. A key a line, so that an error's line says something."""

    def plain(value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"a spec can't hold {value!r} ({type(value).__name__}): expected text, numbers, lists and dicts")

    lines: List[str] = []
    for key, value in spec.items():
        lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, default=plain)}")
    return "{" + ",\n ".join(lines) + "}\n"


def _place(rank: Optional[int], ranks: Union[int, str], job: Optional[str]) -> Tuple[int, int, Optional[str]]:
    """(rank, ranks, job) of this process: as given, else as the launcher says."""
    if isinstance(ranks, str) and ranks != "auto":
        raise SpecError(f"ranks: {ranks!r}: expected a number or \"auto\"")
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise SpecError(f"rank: {rank!r}: expected a number from 0")
    if job is not None and not (isinstance(job, str) and 0 < len(job.encode("utf-8", "surrogateescape")) <= launch.JOB_MOST):
        raise SpecError(f"job: {job!r:.60}: expected a text of 1 to {launch.JOB_MOST} bytes, the same for all ranks of the job")
    found = None if rank is not None and ranks != "auto" else launch.detect()
    if ranks == "auto":
        ranks = found.world if found else 1
    elif found and isinstance(ranks, int) and ranks > 1 and found.world != ranks:
        raise SpecError(f"ranks: {ranks}, but {found.launcher} says {found.world}: pass ranks=\"auto\", or rank= as well")
    if rank is None:
        rank = found.rank if found else 0
    if job is None and found:
        job = found.job or None
    return rank, int(ranks), job


def _check_seconds(name: str, value: Any, none: str = "") -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if math.isnan(seconds) or seconds < 0:
        raise SpecError(f"{name}: {value!r}; expected seconds, 0 or more{none}")
    return seconds


def _check_timeout(timeout: Any) -> Optional[float]:
    return None if timeout is None else _check_seconds("timeout", timeout, ", or None for no limit")


def _like(error: Error, text: str, kind: Optional[Type[Error]] = None) -> Error:
    other = (kind or type(error))(text)
    other.code = error.code
    return other


def _window_error(window: int, error: WindowError) -> Error:
    return _like(error, f"all {window} batches of this Loader's window (window={window}) are still held, so no further one can come: "
                        "let go of a batch before you ask for the next, copy what you keep (numpy.array), or open the "
                        "Loader with writable=True, which copies every batch")
