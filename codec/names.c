#include "codec/decode.h"

const char *fby_reason_name(fby_reason reason)
{
    static const char *const names[FBY_REASONS] = {
        [FBY_REASON_NONE] = "none",           [FBY_REASON_EMPTY] = "empty",
        [FBY_REASON_FORMAT] = "format",       [FBY_REASON_TRUNCATED] = "truncated",
        [FBY_REASON_CORRUPT] = "corrupt",     [FBY_REASON_UNSUPPORTED] = "unsupported",
        [FBY_REASON_TOO_LARGE] = "too large", [FBY_REASON_MEMORY] = "memory",
        [FBY_REASON_MISSING] = "missing",     [FBY_REASON_UNREADABLE] = "unreadable",
        [FBY_REASON_CHANGED] = "changed",     [FBY_REASON_IO] = "i/o",
        [FBY_REASON_TIMEOUT] = "timeout",     [FBY_REASON_CRASHED] = "crashed",
        [FBY_REASON_SHAPE] = "shape",
    };

    return (unsigned)reason < FBY_REASONS ? names[reason] : "unknown";
}

const char *fby_format_name(fby_format format)
{
    static const char *const names[FBY_FORMATS] = {
        [FBY_FORMAT_UNKNOWN] = "unknown", [FBY_FORMAT_JPEG] = "JPEG", [FBY_FORMAT_PNG] = "PNG",
        [FBY_FORMAT_WEBP] = "WebP",       [FBY_FORMAT_TIFF] = "TIFF", [FBY_FORMAT_GIF] = "GIF",
        [FBY_FORMAT_FBL] = "FBL",         [FBY_FORMAT_BMP] = "BMP",   [FBY_FORMAT_PNM] = "PNM",
        [FBY_FORMAT_JPEG_XL] = "JPEG XL", [FBY_FORMAT_HEIF] = "HEIF", [FBY_FORMAT_AVIF] = "AVIF",
        [FBY_FORMAT_HTML] = "HTML",
    };

    return (unsigned)format < FBY_FORMATS ? names[format] : "unknown";
}
