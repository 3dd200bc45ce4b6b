/* PNG's row filters undone: https://www.w3.org/TR/png-3/#9Filters. Private to codec/. */
#ifndef FBY_CODEC_PNG_FILTER_H
#define FBY_CODEC_PNG_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FBY_PNG_FILTERS = 5 };

/* In place, `row` being `length` bytes after the filter's number; `above` is the row above, undone, or zeros;
 * `pixel` is the bytes of a pixel, at least 1. `filter` < FBY_PNG_FILTERS. */
void fby_png_unfilter(unsigned filter, uint8_t *row, const uint8_t *above, size_t length, size_t pixel);

#endif
