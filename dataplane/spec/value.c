#include "dataplane/spec/value.h"

#include <ctype.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t plain_locale;
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

static void make_plain(void)
{
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool fby_value_bool(const char *text, bool *out)
{
    *out = !strcmp(text, "true");
    return *out || !strcmp(text, "false");
}

bool fby_value_unsigned(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(value, 10u, &value)) return false;
        if (__builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) return false;
    }
    *out = value;
    return true;
}

/* A decimal number at the start of `text`: where it ends, or NULL. strtod alone would take hex, inf and nan.
 */
static const char *number(const char *text, double *out)
{
    const char *end = text;
    if (*end == '-' || *end == '+') end++;
    const char *digits = end;
    uint32_t count = 0;
    for (; isdigit((unsigned char)*end) || *end == '.'; end++) count += *end != '.';
    if (!count || end - digits > count + 1) return NULL;
    if (*end == 'e' || *end == 'E') {
        const char *power = end + 1;
        if (*power == '-' || *power == '+') power++;
        if (isdigit((unsigned char)*power)) {
            while (isdigit((unsigned char)*power)) power++;
            end = power;
        }
    }
    pthread_once(&plain_once, make_plain);
    char *stopped = NULL;
    *out = plain_locale ? strtod_l(text, &stopped, plain_locale) : strtod(text, &stopped);
    return stopped == end && isfinite(*out) ? end : NULL;
}

bool fby_value_real(const char *text, double *out)
{
    const char *end = number(text, out);
    if (!end) return false;
    if (!*end) return true;
    double divisor;
    if (*end != '/' || !(end = number(end + 1, &divisor)) || *end || divisor == 0) return false;
    *out /= divisor;
    return isfinite(*out);
}

bool fby_value_duration(const char *text, uint64_t *out_ns)
{
    static const struct {
        const char *unit;
        double milliseconds;
    } units[] = {{"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}};
    double value;
    const char *unit = number(text, &value);
    if (!unit) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].unit)) continue;
        double milliseconds = value * units[i].milliseconds;
        if (milliseconds < 0 || milliseconds > 1e12 || milliseconds != nearbyint(milliseconds)) return false;
        *out_ns = (uint64_t)milliseconds * 1000000u;
        return true;
    }
    return false;
}

bool fby_value_bytes(const char *text, uint64_t *out)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},          {"B", 1},       {"K", 1024},      {"KiB", 1024}, {"M", 1 << 20},
                 {"MiB", 1 << 20}, {"G", 1 << 30}, {"GiB", 1 << 30}, {"T", 0x1p40}, {"TiB", 0x1p40},
                 {"kB", 1e3},      {"MB", 1e6},    {"GB", 1e9},      {"TB", 1e12}};
    double value;
    const char *unit = *text >= '0' && *text <= '9' ? number(text, &value) : NULL;
    for (size_t i = 0; unit && i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].unit)) continue;
        value *= units[i].bytes;
        if (!(value < 1e18)) return false;
        *out = (uint64_t)value;
        return true;
    }
    return false;
}

void fby_value_print_real(double value, char *text)
{
    pthread_once(&plain_once, make_plain);
    locale_t before = plain_locale ? uselocale(plain_locale) : (locale_t)0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, FBY_VALUE_TEXT, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (before) uselocale(before);
}

void fby_value_print_duration(uint64_t ns, char *text)
{
    uint64_t milliseconds = ns / 1000000u;
    if (milliseconds % 1000)
        snprintf(text, FBY_VALUE_TEXT, "%" PRIu64 "ms", milliseconds);
    else
        snprintf(text, FBY_VALUE_TEXT, "%" PRIu64 "s", milliseconds / 1000);
}

void fby_value_print_bytes(uint64_t bytes, char *text)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes && bytes % 1024 == 0 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, FBY_VALUE_TEXT, "%" PRIu64 "%s", bytes, units[unit]);
}
