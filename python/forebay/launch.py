"""Which rank of how many this process is, as its launcher says."""

from __future__ import annotations

import os
from typing import Mapping, NamedTuple, Optional

from .errors import SpecError


class Rank(NamedTuple):
    """A process's place among those of its job: `rank` of `world`, and who said so."""

    rank: int
    world: int
    launcher: str


# In order of trust: (name, variable of the rank, of the world's size, a variable that must be there too). Slurm sets
# SLURM_PROCID in batch scripts as well, which are no step.
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", None),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", None),
    ("PMIx", "PMIX_RANK", "PMIX_SIZE", None),
    ("PMI", "PMI_RANK", "PMI_SIZE", None),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"),
)


def _number(name: str, environment: Mapping[str, str]) -> int:
    text = environment[name]
    if not text.isdecimal():
        raise SpecError(f"{name}={text!r} in the environment: expected a whole number; unset it, or pass rank= and ranks=")
    return int(text)


def detect(environment: Optional[Mapping[str, str]] = None) -> Optional[Rank]:
    """What the launcher's variables say, by the first of torchrun, Open MPI, PMIx, PMI and Slurm that is there; None without any.

    Launchers that contradict each other are an error that names both: a job started by mpirun inside torchrun, say.
    """
    environment = os.environ if environment is None else environment
    found: Optional[Rank] = None
    for launcher, rank_name, world_name, needed in _LAUNCHERS:
        if rank_name not in environment or world_name not in environment or (needed and needed not in environment):
            continue
        here = Rank(_number(rank_name, environment), _number(world_name, environment), launcher)
        if here.rank >= here.world:
            raise SpecError(f"{launcher}: {rank_name}={here.rank} of {world_name}={here.world}: ranks are counted from 0")
        if found is None:
            found = here
        elif (found.rank, found.world) != (here.rank, here.world) and here.world != 1:
            raise SpecError(f"{found.launcher} says rank {found.rank} of {found.world}, {here.launcher} rank {here.rank} of {here.world}: "
                            "pass rank= and ranks= to say which holds")
    return found
