/* An op's parameters: from a spec's node to its structure, and back to text. */
#ifndef FBY_DATAPLANE_PARAMS_H
#define FBY_DATAPLANE_PARAMS_H

#include <stdio.h>

#include "dataplane/ops/op.h"
#include "dataplane/spec/yaml.h"

/* Fills `params` (op->params_bytes, zeroed) from `value`: a map, a lone value, nothing, or NULL (the op's
 * name alone). `key` is what messages call the op. Every parameter not given gets its default. */
int fby_params_parse(const fby_op *op, const fby_yaml_node *value, uint32_t line, const char *key,
                     uint64_t augment_seed, const fby_spec_place *place, void *params);
/* All defaults; the op must require nothing. */
int fby_params_default(const fby_op *op, uint64_t augment_seed, void *params, fby_error *error);
/* "{name: value, …}", every parameter in the table's order: the one text of equal parameters. */
void fby_params_print(const fby_op *op, const void *params, FILE *out);

#endif
