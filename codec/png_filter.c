#include "codec/png_filter.h"

#include <stdlib.h>

enum { NONE, SUB, UP, AVERAGE, PAETH };

static void undo_sub(uint8_t *row, size_t length, size_t pixel)
{
    for (size_t i = pixel; i < length; i++) row[i] = (uint8_t)(row[i] + row[i - pixel]);
}

static void undo_up(uint8_t *restrict row, const uint8_t *restrict above, size_t length)
{
    for (size_t i = 0; i < length; i++) row[i] = (uint8_t)(row[i] + above[i]);
}

static void undo_average(uint8_t *row, const uint8_t *above, size_t length, size_t pixel)
{
    size_t i = 0;

    for (; i < pixel && i < length; i++) row[i] = (uint8_t)(row[i] + above[i] / 2);
    for (; i < length; i++) row[i] = (uint8_t)(row[i] + (row[i - pixel] + above[i]) / 2);
}

static inline uint8_t paeth(int left, int above, int corner)
{
    int to_left = abs(above - corner);
    int to_above = abs(left - corner);
    int to_corner = abs(left + above - 2 * corner);
    int nearer = to_above <= to_corner ? above : corner;

    return (uint8_t)(to_left <= to_above && to_left <= to_corner ? left : nearer);
}

/* Each byte of a pixel waits for the same byte of the pixel before: with the number of bytes known to the
 * compiler, their chains run side by side in registers. */
static inline __attribute__((always_inline)) void undo_paeth_by(uint8_t *row, const uint8_t *above,
                                                                size_t length, const size_t pixel)
{
    uint8_t left[8] = {0};
    uint8_t corner[8] = {0};

    for (size_t i = 0; i + pixel <= length; i += pixel) {
        for (size_t k = 0; k < pixel; k++) {
            left[k] = (uint8_t)(row[i + k] + paeth(left[k], above[i + k], corner[k]));
            corner[k] = above[i + k];
            row[i + k] = left[k];
        }
    }
}

static void undo_paeth(uint8_t *row, const uint8_t *above, size_t length, size_t pixel)
{
    switch (pixel) {
    case 1:
        undo_paeth_by(row, above, length, 1);
        break;
    case 2:
        undo_paeth_by(row, above, length, 2);
        break;
    case 3:
        undo_paeth_by(row, above, length, 3);
        break;
    case 4:
        undo_paeth_by(row, above, length, 4);
        break;
    case 6:
        undo_paeth_by(row, above, length, 6);
        break;
    case 8:
        undo_paeth_by(row, above, length, 8);
        break;
    default:
        break;
    }
}

void fby_png_unfilter(unsigned filter, uint8_t *row, const uint8_t *above, size_t length, size_t pixel)
{
    switch (filter) {
    case SUB:
        undo_sub(row, length, pixel);
        break;
    case UP:
        undo_up(row, above, length);
        break;
    case AVERAGE:
        undo_average(row, above, length, pixel);
        break;
    case PAETH:
        undo_paeth(row, above, length, pixel);
        break;
    default:
        break;
    }
}
