/* Scalars of a spec, to and from text, whatever the process's locale. */
#ifndef FBY_DATAPLANE_VALUE_H
#define FBY_DATAPLANE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FBY_VALUE_TEXT = 32 };

/* Each tells whether `text` is such a value, whole. */
bool fby_value_bool(const char *text, bool *out);            /* true, false */
bool fby_value_unsigned(const char *text, uint64_t *out);    /* decimal digits */
bool fby_value_real(const char *text, double *out);          /* 0.5, -1e-3, 3/4; finite */
bool fby_value_duration(const char *text, uint64_t *out_ns); /* 500ms, 30s, 1.5m, 2h; whole milliseconds */
bool fby_value_bytes(const char *text, uint64_t *out);       /* 4096, 8GiB, 1.5G, 2TB */

/* The shortest text that reads back as the same value. `text` has FBY_VALUE_TEXT bytes. */
__attribute__((nonnull)) void fby_value_print_real(double value, char *text);
__attribute__((nonnull)) void fby_value_print_duration(uint64_t ns, char *text);
__attribute__((nonnull)) void fby_value_print_bytes(uint64_t bytes, char *text);

#endif
