/* Our entropy decoder under libjpeg-turbo: the bits of a baseline JPEG with Huffman codes, in one interleaved
 * scan, to coefficients; everything else stays libjpeg's. README.md, "Entropy decoding", says what it
 * replaces and why that is safe. Private to codec/.
 *
 *     jpeg_start_decompress(&jpeg);
 *     switch (fby_jpeg_entropy_attach(entropy, &jpeg)) ...
 *     jpeg_read_scanlines(...), jpeg_skip_scanlines(...), jpeg_finish_decompress(...) as ever
 *
 * It decodes only what it is sure of. At anything else it leaves libjpeg through error_exit, as an error
 * does, and fby_jpeg_entropy_declined() is true: rows read before are right, and the caller decodes the
 * picture again without it, for libjpeg's pixels and verdict. */
#ifndef FBY_CODEC_JPEG_ENTROPY_H
#define FBY_CODEC_JPEG_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

typedef struct fby_jpeg_entropy fby_jpeg_entropy;

typedef enum fby_jpeg_attached {
    FBY_JPEG_ATTACHED,
    FBY_JPEG_NOT_ATTACHED, /* the picture isn't one for it, or this libjpeg isn't: libjpeg goes on alone */
    FBY_JPEG_NO_MEMORY,
} fby_jpeg_attached;

/* NULL without memory. One for a thread, for any number of pictures, one after the other. */
fby_jpeg_entropy *fby_jpeg_entropy_create(void);
void fby_jpeg_entropy_destroy(fby_jpeg_entropy **entropy);
size_t fby_jpeg_entropy_bytes(const fby_jpeg_entropy *entropy);
/* Gives back what an outsized picture made it take. */
void fby_jpeg_entropy_trim(fby_jpeg_entropy *entropy);

/* Right after jpeg_start_decompress(), before the first row. The source must hold all of the file that there
 * is. `entropy` must live until the picture's end. */
fby_jpeg_attached fby_jpeg_entropy_attach(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg);
/* Whether it left the picture that it was attached to last. */
bool fby_jpeg_entropy_declined(const fby_jpeg_entropy *entropy);

/* NULL: it was built for the libjpeg that runs, and found right on a few pictures when first asked. Else why
 * it isn't used. */
const char *fby_jpeg_entropy_refused(void);

#endif
