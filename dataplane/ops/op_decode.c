/* decode: encoded bytes to RGB pixels, as Pillow's Image.open(…).convert("RGB"). */
#include "dataplane/ops/picture.h"

typedef struct params {
    bool fast, exif, tolerate_missing_eoi;
    int64_t max_pixels;
    int32_t entropy;
} params;

enum { ENTROPY_AUTO, ENTROPY_LIBJPEG };

static const char *const entropy_choices[] = {"auto", "libjpeg", NULL};

static const fby_param list[] = {
    {"fast", FBY_PARAM_BOOL, offsetof(params, fast), "false", 0, 0, NULL,
     "JPEG: quicker arithmetic whose pixels differ from Pillow's"},
    {"exif", FBY_PARAM_BOOL, offsetof(params, exif), "false", 0, 0, NULL,
     "turn the picture as its EXIF orientation says"},
    {"tolerate_missing_eoi", FBY_PARAM_BOOL, offsetof(params, tolerate_missing_eoi), "false", 0, 0, NULL,
     "JPEG: take a file that lacks nothing but its end marker"},
    {"max_pixels", FBY_PARAM_INT, offsetof(params, max_pixels), "178956970", 1, 4294836225, NULL,
     "a picture with more pixels is a bad sample, refused before memory is taken"},
    {"entropy", FBY_PARAM_CHOICE, offsetof(params, entropy), "auto", 0, 0, entropy_choices,
     "JPEG: what decodes Huffman codes; `auto`: Forebay where it may, at the same pixels"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    if (shape->stage != FBY_STAGE_ENCODED)
        return fby_fail(error, FBY_EINVAL,
                        "the samples are decoded already; expected one decode, first in the pipeline");
    shape->stage = FBY_STAGE_PICTURE;
    shape->channels = 3;
    shape->dtype = FBY_U8;
    shape->layout = FBY_HWC;
    return FBY_OK;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    (void)random;
    const params *with = p;
    fby_decode_options options = {.max_pixels = (uint64_t)with->max_pixels,
                                  .fast = with->fast,
                                  .exif = with->exif,
                                  .tolerate_missing_eoi = with->tolerate_missing_eoi,
                                  .libjpeg_entropy = with->entropy == ENTROPY_LIBJPEG};
    return fby_picture_open(picture, &options);
}

const fby_op fby_op_decode = {
    .name = "decode",
    .version = 1,
    .about = "reads the picture: JPEG, PNG, WebP, TIFF, GIF or FBL, found by content, as RGB",
    .params = list,
    .param_count = sizeof list / sizeof *list,
    .params_bytes = sizeof(params),
    .infer = infer,
    .apply = apply};
