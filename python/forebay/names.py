"""The names that a program uses: which one is meant by one that there isn't, and a spec's errors in terms of a Loader's arguments."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Any, Callable, Iterable

# What others call it, and what does it here.
_ELSEWHERE = {
    "shuffle": 'order= does it: "shared" and "strict" are random orders, "sequential" isn\'t',
    "sampler": "split= says which samples an epoch has, order= in which order",
    "batch_sampler": "split= says which samples an epoch has, order= in which order, batch_size= and drop_last= how many a batch",
    "num_workers": "the server has the workers, one set for all programs: FOREBAY_WORKERS, or forebay serve --workers",
    "workers": "the server has the workers, one set for all programs: FOREBAY_WORKERS, or forebay serve --workers",
    "prefetch_factor": "window= says how many batches are made ahead",
    "persistent_workers": "the server lives as long as its Loaders, or as forebay serve",
    "pin_memory": "batches lie in shared memory: pin_memory() of the tensor copies one",
    "collate_fn": "samples come as batches already",
    "transform": "pipeline= says what is done to a sample",
    "transforms": "pipeline= says what is done to a sample",
    "generator": "seed= and augment_seed= say what the draws depend on",
    "root": "dataset= is the folder",
}

# A spec's keys that an argument of another name stands for.
_ARGUMENTS = {"batch.size": "batch_size", "batch.drop_last": "drop_last", "batch.echo": "batch_echo"}


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """What ends an error's text: the nearest of `names`, where one is near."""
    near = difflib.get_close_matches(word, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def one_of(names: Iterable[str]) -> str:
    """a, b or c"""
    *some, last = names
    return f"{', '.join(some)} or {last}" if some else last


def refuse_unknown(what: str, function: Callable[..., Any], given: Iterable[str]) -> None:
    """A TypeError for the first of the keyword arguments `given` that `function` hasn't got."""
    for name in given:
        names = [parameter.name for parameter in inspect.signature(function).parameters.values()
                 if parameter.kind is not parameter.VAR_KEYWORD and parameter.name not in ("self", "cls")]
        hint = did_you_mean(name, names)
        if name in _ELSEWHERE:
            hint = f": {_ELSEWHERE[name]}"
        raise TypeError(f"{what} has no argument {name!r}{hint or '; expected ' + one_of(names)}")


def in_arguments(text: str) -> str:
    """The text of an error in a spec that the program didn't write as text: without the line, and with an argument's name for the key
    where the spec was made of arguments."""
    found = re.match(r"(Loader|spec):\d+: (batch\.[a-z_]+)?", text)
    if not found:
        return text
    name, key = found.groups("")
    return f"{name}: {_ARGUMENTS.get(key, key) if name == 'Loader' else key}{text[found.end():]}"
