#include "codec/exif.h"

#include <stdbool.h>
#include <string.h>

enum { TAG_ORIENTATION = 274, TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4 };

static uint32_t read16(const uint8_t *at, bool little)
{
    return little ? at[0] | (uint32_t)at[1] << 8 : (uint32_t)at[0] << 8 | at[1];
}

static uint32_t read32(const uint8_t *at, bool little)
{
    return little ? read16(at, true) | read16(at + 2, true) << 16
                  : read16(at, false) << 16 | read16(at + 2, false);
}

static uint32_t valid(uint32_t orientation)
{
    return orientation >= 1 && orientation <= 8 ? orientation : 0;
}

uint32_t fby_exif_orientation(const uint8_t *bytes, size_t length)
{
    for (int prefixes = 0; prefixes < 2 && length >= 6 && !memcmp(bytes, "Exif\0\0", 6); prefixes++) {
        bytes += 6;
        length -= 6;
    }
    if (length < 8) return 0;

    bool little = bytes[0] == 'I' && bytes[1] == 'I';
    bool big = bytes[0] == 'M' && bytes[1] == 'M';
    if (!little && !big) return 0;
    if (read16(bytes + 2, little) != 42) return 0;

    size_t directory = read32(bytes + 4, little);
    if (directory > length || length - directory < 2) return 0;
    size_t entries = read16(bytes + directory, little);
    size_t room = (length - directory - 2) / 12;
    if (entries > room) entries = room;

    uint32_t found = 0;
    for (size_t i = 0; i < entries; i++) {
        const uint8_t *entry = bytes + directory + 2 + 12 * i;
        if (read16(entry, little) != TAG_ORIENTATION || read32(entry + 4, little) != 1) continue;

        uint32_t type = read16(entry + 2, little);
        if (type == TYPE_SHORT)
            found = read16(entry + 8, little);
        else if (type == TYPE_LONG)
            found = read32(entry + 8, little);
        else if (type == TYPE_BYTE)
            found = entry[8];
    }
    return valid(found);
}

uint32_t fby_xmp_orientation(const uint8_t *bytes, size_t length)
{
    static const char name[] = "tiff:Orientation";
    const size_t name_length = sizeof name - 1;
    if (!bytes) return 0;

    const uint8_t *end = bytes + length;
    while (bytes < end) {
        const uint8_t *at = memmem(bytes, (size_t)(end - bytes), name, name_length);
        if (!at) return 0;
        at += name_length;

        size_t left = (size_t)(end - at);
        if (left >= 3 && at[0] == '=' && at[1] == '"' && at[2] >= '0' && at[2] <= '9') {
            return valid(at[2] - '0');
        }
        if (left >= 2 && at[0] == '>' && at[1] >= '0' && at[1] <= '9') return valid(at[1] - '0');
        bytes = at;
    }
    return 0;
}
