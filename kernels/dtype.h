/* Element types and layouts of a finished sample. The numbers are stored in segments: they never change. */
#ifndef FBY_KERNELS_DTYPE_H
#define FBY_KERNELS_DTYPE_H

#include <stdint.h>

typedef enum fby_dtype { FBY_U8 = 1, FBY_U16 = 2, FBY_F16 = 3, FBY_BF16 = 4, FBY_F32 = 5 } fby_dtype;

typedef enum fby_layout { FBY_HWC = 1, FBY_CHW = 2 } fby_layout;

static inline uint32_t fby_dtype_bytes(fby_dtype dtype)
{
    return dtype == FBY_U8 ? 1 : dtype == FBY_F32 ? 4 : 2;
}

#endif
