/* The encoder's bodies, compiled for AVX2. */
#include "kernels/fbl_avx2.h"

#define FBL_SAMPLE uint8_t
#define FBL(name)  name##_u8
#include "kernels/fbl_body.h"
#include "kernels/fbl_model_body.h"

void fby_fbl_model_rans_avx2(fby_fbl_work *work, const uint32_t *shift)
{
    if (work->bits == 8)
        model_rans_u8(work, shift);
    else
        fby_fbl_kernels_c.model_rans(work, shift);
}

void fby_fbl_model_pack_avx2(fby_fbl_work *work)
{
    if (work->bits == 8)
        model_pack_u8(work);
    else
        fby_fbl_kernels_c.model_pack(work);
}

size_t fby_fbl_encode_pack_avx2(fby_fbl_work *work, uint8_t *out)
{
    return work->bits == 8 ? encode_pack_u8(work, out) : fby_fbl_kernels_c.encode_pack(work, out);
}
