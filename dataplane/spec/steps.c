/* How many batches an epoch may have that samples which come again fill up. */
#include "dataplane/spec/spec.h"
#include "dataplane/spec/yaml.h"

enum { RANKS_TEXT = 32 };

/* Samples of an epoch in which each comes as often as it may. */
static uint64_t samples_most(const fby_spec *spec, uint64_t part)
{
    return (uint64_t)((double)part * spec->echo.max);
}

uint64_t fby_spec_steps_samples(const fby_spec *spec, uint64_t part)
{
    uint64_t whole = spec->steps_per_epoch * spec->batch_size, most = samples_most(spec, part);
    return whole < most ? whole : most;
}

int fby_spec_check_steps(const fby_spec *spec, uint64_t part, fby_error *error)
{
    if (!spec->steps_per_epoch || !part) return FBY_OK;
    uint64_t size = spec->batch_size, rounds_up = spec->drop_last ? 0 : size - 1;
    uint64_t least = (part + size - 1) / size, most = (samples_most(spec, part) + rounds_up) / size;
    if (spec->steps_per_epoch >= least && spec->steps_per_epoch <= most) return FBY_OK;
    fby_spec_place place = {spec->name, error};
    char ranks[RANKS_TEXT] = "";
    if (spec->ranks > 1) snprintf(ranks, sizeof ranks, "for each of %u ranks ", spec->ranks);
    return fby_spec_refuse(&place, spec->steps_line, "steps_per_epoch",
                           "%llu; an epoch %shas %llu fresh samples: %llu batches of %u, or %llu where each "
                           "comes %g times (`max`); "
                           "expected %llu to %llu, another batch size, or a larger `max`",
                           (unsigned long long)spec->steps_per_epoch, ranks, (unsigned long long)part,
                           (unsigned long long)least, spec->batch_size, (unsigned long long)most,
                           spec->echo.max, (unsigned long long)least, (unsigned long long)most);
}
