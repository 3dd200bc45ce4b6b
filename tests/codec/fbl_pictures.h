/* Pictures made up for the tests of FBL: kinds of contents, any size, channels and bits. */
#ifndef FBY_TESTS_CODEC_FBL_PICTURES_H
#define FBY_TESTS_CODEC_FBL_PICTURES_H

#include <stdbool.h>
#include <stdint.h>

#include <forebay/fbl.h>

typedef enum fbl_kind {
    FBL_NOISE,    /* nothing to predict */
    FBL_SMOOTH,   /* slopes with a little noise */
    FBL_ONE,      /* one colour */
    FBL_AREAS,    /* few colours in areas, as label masks */
    FBL_DOTS,     /* many colours, but few enough for a palette */
    FBL_EXTREMES, /* least and most values only */
    FBL_SPECKS,   /* one colour, and hundreds of others that come again */
    FBL_KINDS
} fbl_kind;

typedef struct fbl_picture {
    fby_fbl_image image;
    void *samples; /* image.data, to be freed */
    size_t bytes;
} fbl_picture;

/* Interleaved, without gaps. */
fbl_picture fbl_picture_make(fbl_kind kind, uint32_t width, uint32_t height, uint32_t channels, uint32_t bits,
                             uint32_t seed);
void fbl_picture_free(fbl_picture *picture);

#endif
