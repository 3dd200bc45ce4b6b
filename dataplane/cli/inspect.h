/* What `forebay inspect` is made of. */
#ifndef FBY_DATAPLANE_CLI_INSPECT_H
#define FBY_DATAPLANE_CLI_INSPECT_H

#include <forebay/fbl.h>

/* Writes a PNG with a square for each tile, `modes` being theirs in row-major order. */
int fby_modes_draw(const char *path, const fby_fbl_info *info, const uint8_t *modes, fby_error *error);

#endif
