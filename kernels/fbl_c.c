/* FBL's tiles in C: the reference of every tier. */
#include <string.h>

#include "kernels/crc32c.h"
#include "kernels/fbl.h"

#define FBL_SAMPLE uint8_t
#define FBL(name)  name##_u8
#include "kernels/fbl_body.h"
#include "kernels/fbl_model_body.h"
#undef FBL_SAMPLE
#undef FBL
#define FBL_SAMPLE uint16_t
#define FBL(name)  name##_u16
#include "kernels/fbl_body.h"
#include "kernels/fbl_model_body.h"
#undef FBL_SAMPLE
#undef FBL
#include "kernels/fbl_near_body.h"
#include "kernels/fbl_palette_body.h"

static void rans(fby_fbl_rans *const *tile, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tile[i]->coded.bits == 8)
            rans_decode_u8(tile[i]);
        else
            rans_decode_u16(tile[i]);
    }
}

static void palette(fby_fbl_palette *tile)
{
    palette_decode(tile);
}

static void pack(fby_fbl_pack *tile)
{
    if (tile->coded.bits == 8)
        pack_decode_u8(tile);
    else
        pack_decode_u16(tile);
}

static void model_rans(fby_fbl_work *work, const uint32_t *shift)
{
    if (work->bits == 8)
        model_rans_u8(work, shift);
    else
        model_rans_u16(work, shift);
}

static void model_pack(fby_fbl_work *work)
{
    if (work->bits == 8)
        model_pack_u8(work);
    else
        model_pack_u16(work);
}

static size_t encode_pack(fby_fbl_work *work, uint8_t *out)
{
    return work->bits == 8 ? encode_pack_u8(work, out) : encode_pack_u16(work, out);
}

const fby_fbl_kernels fby_fbl_kernels_c = {
    .ways = 1,
    .rans = rans,
    .palette = palette,
    .pack = pack,
    .model_rans = model_rans,
    .model_pack = model_pack,
    .encode_pack = encode_pack,
    .crc32c = fby_crc32c_c,
};
