/* Work of several threads that ends with the call. Private to codec/fbl/. */
#ifndef FBY_CODEC_FBL_PARALLEL_H
#define FBY_CODEC_FBL_PARALLEL_H

#include <stdint.h>

/* Calls run(context, 0), … run(context, workers - 1), all but the first on threads of their own; where one
 * can't be started, its turn is left out, so that work must be shared out as it goes. */
void fbl_parallel(uint32_t workers, void (*run)(void *context, uint32_t worker), void *context);

#endif
