/* A decoder over a given table of kernels: tests force tiers. */
#ifndef FBY_CODEC_FBL_DECODE_H
#define FBY_CODEC_FBL_DECODE_H

#include <forebay/fbl.h>

#include "kernels/fbl.h"

int fbl_decoder_create_with(fby_fbl_decoder **out, const fby_fbl_kernels *kernels);
int fbl_encoder_create_with(fby_fbl_encoder **out, const fby_fbl_kernels *kernels);

#endif
