/* The orientation that EXIF or XMP data asks for. Private to codec/. */
#ifndef FBY_CODEC_EXIF_H
#define FBY_CODEC_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* Tag 274 of the first directory of TIFF-structured data, with or without a leading "Exif\0\0".
 * 1-8; 0 where there is none, or where it holds another value. */
uint32_t fby_exif_orientation(const uint8_t *bytes, size_t length);
/* tiff:Orientation of an XMP packet: 0 as above. Pillow asks XMP where EXIF says nothing. */
uint32_t fby_xmp_orientation(const uint8_t *bytes, size_t length);

#endif
