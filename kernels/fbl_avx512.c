/* FBL's tiles with AVX-512: palettes and the encoder's side stay AVX2's. */
#include "kernels/fbl_avx512.h"
#include "kernels/crc32c.h"

const fby_fbl_kernels fby_fbl_kernels_avx512 = {
    .ways = FBY_FBL_WAYS,
    .rans = fby_fbl_rans_avx512,
    .palette = fby_fbl_palette_avx2,
    .pack = fby_fbl_pack_avx512,
    .model_rans = fby_fbl_model_rans_avx2,
    .model_pack = fby_fbl_model_pack_avx2,
    .encode_pack = fby_fbl_encode_pack_avx2,
    .push = fby_fbl_push_avx2,
    .crc32c = fby_crc32c_sse42,
};
