#include "dataplane/sampler/strata.h"

uint32_t fby_strata_find(fby_strata *strata, uint64_t members)
{
    for (uint32_t i = 0; i < strata->count; i++) {
        if (strata->all[i].members == members) return i;
    }
    strata->all[strata->count] = (fby_stratum){.members = members, .tag = strata->tags++};
    return strata->count++;
}

uint64_t fby_strata_fair(const fby_strata *strata, uint32_t stratum, uint64_t tasks, uint32_t block)
{
    if (strata->count == 1) return tasks;

    const fby_stratum *s = &strata->all[stratum];
    uint64_t fair = 0;
    for (uint64_t left = tasks; left; left &= left - 1) {
        int task = __builtin_ctzll(left);
        unsigned __int128 share = (unsigned __int128)s->size * strata->got[task];
        share += (unsigned __int128)block * strata->wanted[task];
        if ((unsigned __int128)s->got[task] * strata->wanted[task] < share) fair |= left & -left;
    }
    return fair;
}

void fby_strata_take(fby_strata *strata, uint32_t stratum, uint64_t tasks, uint32_t count)
{
    for (; tasks; tasks &= tasks - 1) {
        int task = __builtin_ctzll(tasks);
        strata->all[stratum].got[task] += count;
        strata->got[task] += count;
    }
}

void fby_strata_move(fby_strata *strata, uint32_t from, uint32_t to, uint64_t needing)
{
    uint64_t had = strata->all[from].members & ~needing;
    for (; had; had &= had - 1) {
        int task = __builtin_ctzll(had);
        strata->all[from].got[task]--;
        strata->all[to].got[task]++;
    }

    uint64_t joined = strata->all[to].members & ~strata->all[from].members;
    for (; joined; joined &= joined - 1) {
        int task = __builtin_ctzll(joined);
        strata->wanted[task]++;
        if (needing >> task & 1) continue;
        strata->all[to].got[task]++;
        strata->got[task]++;
    }
    strata->all[from].size--;
    strata->all[to].size++;
}
