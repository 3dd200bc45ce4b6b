/* DLPack 1.0's structures, from its specification (dmlc.github.io/dlpack, "C API"). Names are the
 * specification's. */
#ifndef FBY_PYTHON_DLPACK_H
#define FBY_PYTHON_DLPACK_H

#include <stdint.h>

typedef struct DLPackVersion {
    uint32_t major, minor;
} DLPackVersion;

enum { kDLCPU = 1 };

typedef struct DLDevice {
    int32_t device_type, device_id;
} DLDevice;

enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4 };

typedef struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} DLTensor;

/* Before 1.0: can't say that the memory is read-only. */
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#define DLPACK_FLAG_BITMASK_READ_ONLY 1
#define DLPACK_FLAG_BITMASK_IS_COPIED 2

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif
