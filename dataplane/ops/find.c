#include <string.h>

#include "dataplane/ops/op.h"

const fby_op *fby_op_find(const char *name)
{
    for (uint32_t i = 0; i < fby_op_count; i++)
        if (!strcmp(fby_ops[i]->name, name)) return fby_ops[i];
    return NULL;
}
