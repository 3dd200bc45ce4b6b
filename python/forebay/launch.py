"""Which rank of how many this process is, and of which job, as its launcher says."""

from __future__ import annotations

import hashlib
import os
from typing import Mapping, NamedTuple, Optional, Tuple

from .errors import SpecError


class Rank(NamedTuple):
    """A process's place among those of its job: `rank` of `world`, who said so, and the job's id: the same text for all of its ranks,
    and for no other job of the machine at that time; "" where the launcher has none."""

    rank: int
    world: int
    launcher: str
    job: str = ""


# In order of trust: (name, variable of the rank, of the world's size, a variable that must be there too). Slurm sets
# SLURM_PROCID in batch scripts as well, which are no step.
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", None),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", None),
    ("PMIx", "PMIX_RANK", "PMIX_SIZE", None),
    ("PMI", "PMI_RANK", "PMI_SIZE", None),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"),
)

# What together tells a launcher's jobs from each other: the first group of which the first variable is there. Who sets RANK himself
# sets MASTER_PORT as well, for torch.distributed. A restarted torchrun is another job: ranks of before may still be about.
_JOBS: Mapping[str, Tuple[Tuple[str, ...], ...]] = {
    "torchrun": (("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"), ("MASTER_PORT", "MASTER_ADDR")),
    "Open MPI": (("PMIX_NAMESPACE",), ("OMPI_MCA_ess_base_jobid",)),
    "PMIx": (("PMIX_NAMESPACE",),),
    "PMI": (("PMI_JOBID",),),
    "Slurm": (("SLURM_JOB_ID", "SLURM_STEP_ID"),),
}
# Ranks of this machine, where they may be fewer than all.
_LOCAL = {"torchrun": "LOCAL_WORLD_SIZE", "Open MPI": "OMPI_COMM_WORLD_LOCAL_SIZE"}
JOB_MOST = 256  # bytes of a job's id that a server takes


def _number(name: str, environment: Mapping[str, str]) -> int:
    text = environment[name]
    if not text.isdecimal():
        raise SpecError(f"{name}={text!r} in the environment: expected a whole number; unset it, or pass rank= and ranks=")
    return int(text)


def _check_one_machine(found: Rank, environment: Mapping[str, str]) -> None:
    """The ranks of other machines would never come."""
    name = _LOCAL.get(found.launcher, "")
    here = _number(name, environment) if name in environment else found.world
    machines = _number("SLURM_STEP_NUM_NODES", environment) if found.launcher == "Slurm" and "SLURM_STEP_NUM_NODES" in environment else 1
    if here == found.world and machines == 1:
        return
    told = f"{machines} machines (SLURM_STEP_NUM_NODES)" if machines > 1 else f"several machines, {here} of them here ({name})"
    raise SpecError(f"{found.launcher} says {found.world} ranks on {told}: a task's ranks are those of one machine; make one task of each machine's: pass "
                    "rank= and ranks= of those here, job=, and a split= for its part of the data")


def _job(launcher: str, environment: Mapping[str, str]) -> str:
    for names in _JOBS[launcher]:
        if names[0] in environment:
            job = " ".join([launcher, *(f"{name}={environment[name]}" for name in names if name in environment)])
            if len(job.encode("utf-8", "surrogateescape")) <= JOB_MOST and job.isprintable():
                return job
            return f"{launcher} {hashlib.sha256(job.encode('utf-8', 'surrogateescape')).hexdigest()}"
    return ""


def detect(environment: Optional[Mapping[str, str]] = None) -> Optional[Rank]:
    """What the launcher's variables say, by the first of torchrun, Open MPI, PMIx, PMI and Slurm that is there; None without any.

    Launchers that contradict each other are an error that names both: a job started by mpirun inside torchrun, say. Of those that
    agree the first that has a job id gives it. Ranks on several machines are refused.
    """
    environment = os.environ if environment is None else environment
    found: Optional[Rank] = None
    for launcher, rank_name, world_name, needed in _LAUNCHERS:
        if rank_name not in environment or world_name not in environment or (needed and needed not in environment):
            continue
        here = Rank(_number(rank_name, environment), _number(world_name, environment), launcher, _job(launcher, environment))
        if here.rank >= here.world:
            raise SpecError(f"{launcher}: {rank_name}={here.rank} of {world_name}={here.world}: ranks are counted from 0")
        if found is None:
            found = here
        elif (found.rank, found.world) == (here.rank, here.world):
            found = found._replace(job=found.job or here.job)
        elif here.world != 1:
            raise SpecError(f"{found.launcher} says rank {found.rank} of {found.world}, {here.launcher} rank {here.rank} of {here.world}: "
                            "pass rank= and ranks= to say which holds")
    if found:
        _check_one_machine(found, environment)
    return found
