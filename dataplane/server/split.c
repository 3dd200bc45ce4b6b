#include "dataplane/server/split.h"
#include "dataplane/names/names.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/sampler/generator.h"
#include "dataplane/spec/value.h"
#include "dataplane/spec/yaml.h"
#include "io/message.h"

enum { BUCKET_BITS = 12, BUCKETS = 1 << BUCKET_BITS, LINE_BYTES = 64 * 1024, QUOTED = 80 };

/* The bitmap that is being made, and where messages say that it was asked for. */
typedef struct choice {
    const fby_spec *spec;
    const fby_split *split;
    fby_spec_place place;
    uint64_t samples;
    uint64_t *words;
    uint64_t count;
} choice;

static int no_memory(const choice *made)
{
    return fby_fail(made->place.error, FBY_ENOMEM, "%s:%u: split: no memory to choose among %llu samples",
                    made->spec->name, made->split->line, (unsigned long long)made->samples);
}

/* --- part
 * -------------------------------------------------------------------------------------------------------- */

/* Where an id stands in a split's order. The numbers of different ids differ: the odd step takes them to
 * different states, and the mix is a bijection. */
static inline uint64_t number_of(uint64_t start, uint64_t id)
{
    return fby_mix64(start + (id + 1) * FBY_GOLDEN);
}

static int number_compare(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* The number at a place of the order. Only the numbers of its bucket are sorted. */
static int number_at(const choice *made, uint64_t start, const uint64_t *buckets, uint64_t place,
                     uint64_t *out)
{
    uint64_t bucket = 0, before = 0, found = 0;
    while (before + buckets[bucket] <= place) before += buckets[bucket++];
    uint64_t *numbers = malloc(buckets[bucket] * sizeof *numbers);
    if (!numbers) return no_memory(made);
    for (uint64_t id = 0; id < made->samples; id++) {
        uint64_t number = number_of(start, id);
        if (number >> (64 - BUCKET_BITS) == bucket) numbers[found++] = number;
    }
    qsort(numbers, found, sizeof *numbers, number_compare);
    *out = numbers[place - before];
    free(numbers);
    return FBY_OK;
}

static void take_between(choice *made, uint64_t start, uint64_t first, uint64_t last)
{
    for (uint64_t id = 0; id < made->samples; id += 64) {
        uint64_t here = made->samples - id < 64 ? made->samples - id : 64, word = 0;
        for (uint64_t i = 0; i < here; i++)
            word |= (uint64_t)(number_of(start, id + i) - first <= last - first) << i;
        made->words[id / 64] = word;
    }
}

static int choose_part(choice *made)
{
    const fby_split *split = made->split;
    uint64_t low = (uint64_t)round(split->low * (double)made->samples);
    uint64_t high = (uint64_t)round(split->high * (double)made->samples);
    if (low == high) {
        char from[FBY_VALUE_TEXT], to[FBY_VALUE_TEXT];
        fby_value_print_real(split->low, from);
        fby_value_print_real(split->high, to);
        return fby_spec_refuse(
            &made->place, split->line, "split.part",
            "%s to %s of %llu samples holds none of them; expected a part of one sample at least", from, to,
            (unsigned long long)made->samples);
    }

    /* Apart from what else is drawn with the same seed. */
    uint64_t start = fby_mix64(split->seed ^ UINT64_C(0x73706c6974)); /* "split" */
    uint64_t *buckets = calloc(BUCKETS, sizeof *buckets);
    if (!buckets) return no_memory(made);
    for (uint64_t id = 0; id < made->samples; id++) buckets[number_of(start, id) >> (64 - BUCKET_BITS)]++;

    uint64_t first = 0, last = UINT64_MAX;
    int status = low ? number_at(made, start, buckets, low, &first) : FBY_OK;
    if (!status && high < made->samples) status = number_at(made, start, buckets, high - 1, &last);
    free(buckets);
    if (status) return status;
    take_between(made, start, first, last);
    made->count = high - low;
    return FBY_OK;
}

/* --- ids
 * -------------------------------------------------------------------------------------------------------- */

/* Lines of a file, a buffer at a time. */
typedef struct line_reader {
    int file;
    char *buffer; /* LINE_BYTES */
    size_t at, end;
    uint64_t line; /* the last one's number, from 1 */
    bool finished;
} line_reader;

/* The next line in *text … *stop, without its newline. 1, 0 at the end, or a negative errno; -E2BIG: it is
 * longer than the buffer. */
static int line_next(line_reader *reader, const char **text, const char **stop)
{
    char *newline;
    while (!(newline = memchr(reader->buffer + reader->at, '\n', reader->end - reader->at))) {
        if (reader->finished) break;
        reader->end -= reader->at;
        memmove(reader->buffer, reader->buffer + reader->at, reader->end);
        reader->at = 0;
        if (reader->end == LINE_BYTES) {
            reader->line++;
            return -E2BIG;
        }
        ssize_t got = read(reader->file, reader->buffer + reader->end, LINE_BYTES - reader->end);
        if (got < 0 && errno != EINTR) return -errno;
        if (got > 0) reader->end += (size_t)got;
        reader->finished = got == 0;
    }
    if (!newline && reader->at == reader->end) return 0;
    *text = reader->buffer + reader->at;
    *stop = newline ? newline : reader->buffer + reader->end;
    reader->at = (size_t)(*stop - reader->buffer) + (newline != NULL);
    if (!reader->line++ && *stop - *text >= 3 && !memcmp(*text, "\xef\xbb\xbf", 3)) *text += 3;
    return 1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The id of a line: 1; 0 where there is none on it, -1 where it is something else. */
static int line_id(const char *text, const char *stop, uint64_t *id)
{
    while (text < stop && is_blank(*text)) text++;
    if (text == stop || *text == '#') return 0;
    const char *digits = text;
    for (*id = 0; text < stop && *text >= '0' && *text <= '9'; text++)
        if (*id <= UINT64_MAX / 10 - 1)
            *id = *id * 10 + (uint64_t)(*text - '0'); /* else out of range anyway */
    if (text == digits) return -1;
    while (text < stop && is_blank(*text)) text++;
    return text == stop ? 1 : -1;
}

__attribute__((format(printf, 3, 4))) static int refuse_line(const choice *made, uint64_t line,
                                                             const char *format, ...)
{
    char what[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    fby_path_shown shown = fby_path_show(made->split->ids_path, "");
    return fby_spec_refuse(&made->place, made->split->line, "split.ids", "%s:%llu: %s", shown.text,
                           (unsigned long long)line, what);
}

static int refuse_file(const choice *made, const char *what)
{
    fby_path_shown shown = fby_path_show(made->split->ids_path, "");
    return fby_spec_refuse(&made->place, made->split->line, "split.ids",
                           "%s: %s; expected a text file with an id on each line", shown.text, what);
}

/* A line as a message may quote it. */
static const char *line_quote(const char *text, const char *stop, char *quoted)
{
    char shown[QUOTED - 5];
    size_t length = 0;
    while (text < stop && is_blank(*text)) text++;
    while (stop > text && is_blank(stop[-1])) stop--;
    for (; text < stop && length < sizeof shown - 1; text++)
        shown[length++] = *text >= ' ' && *text < 127 ? *text : '?';
    shown[length] = 0;
    return fby_spec_quote(shown, quoted, QUOTED);
}

/* The file is read again up to the line where the id stands first. */
static int refuse_twice(const choice *made, line_reader *reader, uint64_t twice)
{
    uint64_t line = reader->line, id;
    const char *text, *stop;
    *reader = (line_reader){.file = reader->file, .buffer = reader->buffer};
    if (lseek(reader->file, 0, SEEK_SET) == 0)
        while (line_next(reader, &text, &stop) > 0 && (line_id(text, stop, &id) <= 0 || id != twice))
            continue;
    return refuse_line(made, line, "%llu is given twice, first in line %llu; expected each id once",
                       (unsigned long long)twice, (unsigned long long)reader->line);
}

static int read_ids(choice *made, line_reader *reader)
{
    char quoted[QUOTED];
    const char *text, *stop;
    uint64_t id;
    int more;
    while ((more = line_next(reader, &text, &stop)) > 0) {
        int found = line_id(text, stop, &id);
        if (!found) continue;
        if (found < 0)
            return refuse_line(made, reader->line,
                               "%s; expected an id, 0 to %llu, and nothing else on its line",
                               line_quote(text, stop, quoted), (unsigned long long)made->samples - 1);
        if (id >= made->samples)
            return refuse_line(made, reader->line,
                               "%s is out of range; expected 0 to %llu, the ids of %llu samples",
                               line_quote(text, stop, quoted), (unsigned long long)made->samples - 1,
                               (unsigned long long)made->samples);
        uint64_t *word = &made->words[id / 64], bit = UINT64_C(1) << id % 64;
        if (*word & bit) return refuse_twice(made, reader, id);
        *word |= bit;
        made->count++;
    }
    if (more == -E2BIG)
        return refuse_line(made, reader->line, "a line of more than %d bytes; expected an id", LINE_BYTES);
    if (more) return refuse_file(made, fby_errno_text(-more));
    return made->count ? FBY_OK : refuse_file(made, "it names no id");
}

static int choose_ids(choice *made)
{
    line_reader reader = {.file = open(made->split->ids_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (reader.file < 0) return refuse_file(made, fby_errno_text(errno));
    struct stat about;
    int status;
    if (fstat(reader.file, &about)) {
        status = refuse_file(made, fby_errno_text(errno));
    } else if (!S_ISREG(about.st_mode)) {
        status = refuse_file(made, S_ISDIR(about.st_mode) ? "is a folder" : "is no regular file");
    } else {
        reader.buffer = malloc(LINE_BYTES);
        status = reader.buffer ? read_ids(made, &reader) : no_memory(made);
        free(reader.buffer);
    }
    close(reader.file);
    return status;
}

/* --- classes
 * -------------------------------------------------------------------------------------------------------- */

/* A class that is asked for. */
typedef struct wanted {
    const char *name;
    int64_t label;
    uint32_t index, line; /* in the spec */
    bool found;
} wanted;

static int name_compare(const void *a, const void *b)
{
    return strcmp(((const wanted *)a)->name, ((const wanted *)b)->name);
}

static int label_compare(const void *a, const void *b)
{
    int64_t one = ((const wanted *)a)->label, other = ((const wanted *)b)->label;
    return (one > other) - (one < other);
}

/* Of what isn't there, what stands first in the spec. */
static const wanted *first_missing(const wanted *classes, uint32_t count)
{
    const wanted *first = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (!classes[i].found && (!first || classes[i].index < first->index)) first = &classes[i];
    return first;
}

static int refuse_class(const choice *made, const fby_dataset *dataset, const wanted *missing)
{
    char quoted[QUOTED];
    uint32_t count = fby_dataset_classes(dataset);
    const char **names = malloc(count * sizeof *names);
    if (!names) return no_memory(made);
    for (uint32_t i = 0; i < count; i++) names[i] = fby_dataset_class(dataset, i);
    const char *nearest = fby_name_nearest(missing->name, names, count);
    int status =
        fby_spec_refuse(&made->place, missing->line, "split.classes",
                        "the data set has no class %s; expected names of its %u classes%s%s%s",
                        fby_spec_quote(missing->name, quoted, sizeof quoted), count,
                        nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    free(names);
    return status;
}

static void take(choice *made, uint64_t id)
{
    made->words[id / 64] |= UINT64_C(1) << id % 64;
    made->count++;
}

static int choose_named(choice *made, const fby_dataset *dataset, wanted *classes, uint32_t count)
{
    uint32_t all = fby_dataset_classes(dataset);
    bool *taken = calloc(all, sizeof *taken);
    if (!taken) return no_memory(made);
    qsort(classes, count, sizeof *classes, name_compare);
    for (uint32_t i = 0; i < all; i++) {
        wanted key = {.name = fby_dataset_class(dataset, i)};
        wanted *found = bsearch(&key, classes, count, sizeof *classes, name_compare);
        if (found) found->found = taken[i] = true;
    }
    const wanted *missing = first_missing(classes, count);
    for (uint64_t id = 0; !missing && id < made->samples; id++)
        if (taken[fby_dataset_label(dataset, id)]) take(made, id);
    free(taken);
    if (missing) return refuse_class(made, dataset, missing);
    if (made->count) return FBY_OK;
    return fby_spec_refuse(&made->place, made->split->line, "split.classes",
                           "none of these classes has a sample; expected one that has");
}

static bool label_parse(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-');
    if (!*digits || digits[strspn(digits, "0123456789")]) return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return !errno;
}

static int choose_labels(choice *made, const fby_dataset *dataset, wanted *classes, uint32_t count)
{
    char quoted[QUOTED];
    for (uint32_t i = 0; i < count; i++)
        if (!label_parse(classes[i].name, &classes[i].label))
            return fby_spec_refuse(&made->place, classes[i].line, "split.classes",
                                   "%s, but the data set's labels are numbers; expected whole numbers",
                                   fby_spec_quote(classes[i].name, quoted, sizeof quoted));
    qsort(classes, count, sizeof *classes, label_compare);
    for (uint32_t i = 1; i < count; i++)
        if (classes[i].label == classes[i - 1].label)
            return fby_spec_refuse(&made->place, classes[i].line, "split.classes",
                                   "%lld is given twice; expected it once", (long long)classes[i].label);

    int64_t least = INT64_MAX, most = INT64_MIN;
    wanted *found = NULL, key = {0};
    for (uint64_t id = 0; id < made->samples; id++) {
        int64_t label = fby_dataset_label(dataset, id);
        if (!id || label != key.label) { /* labels often stand together */
            key.label = label;
            found = bsearch(&key, classes, count, sizeof *classes, label_compare);
            if (label < least) least = label;
            if (label > most) most = label;
        }
        if (!found) continue;
        found->found = true;
        take(made, id);
    }
    const wanted *missing = first_missing(classes, count);
    if (!missing) return FBY_OK;
    return fby_spec_refuse(
        &made->place, missing->line, "split.classes",
        "no sample has the label %lld; expected labels of the data set, which are between %lld "
        "and %lld",
        (long long)missing->label, (long long)least, (long long)most);
}

static int choose_classes(choice *made, const fby_dataset *dataset)
{
    const fby_split *split = made->split;
    wanted *classes = calloc(split->class_count, sizeof *classes);
    if (!classes) return no_memory(made);
    for (uint32_t i = 0; i < split->class_count; i++)
        classes[i] = (wanted){.name = split->classes[i].name, .index = i, .line = split->classes[i].line};
    int status = fby_dataset_classes(dataset) ? choose_named(made, dataset, classes, split->class_count)
                                              : choose_labels(made, dataset, classes, split->class_count);
    free(classes);
    return status;
}

/* --- the interface
 * -------------------------------------------------------------------------------------------------------- */

static int choose(uint64_t **out, uint64_t *count, const fby_spec *spec, const fby_dataset *dataset,
                  uint64_t samples, fby_error *error)
{
    choice made = {.spec = spec,
                   .split = &spec->split,
                   .place = {spec->name, error},
                   .samples = samples,
                   .count = samples};
    *out = NULL;
    *count = 0;
    int status = FBY_OK;
    if (spec->split.kind != FBY_SPLIT_ALL) {
        made.count = 0;
        made.words = calloc(samples / 64 + 1, sizeof *made.words);
        if (!made.words) return no_memory(&made);
    }
    switch (spec->split.kind) {
    case FBY_SPLIT_ALL:
        break;
    case FBY_SPLIT_PART:
        status = choose_part(&made);
        break;
    case FBY_SPLIT_IDS:
        status = choose_ids(&made);
        break;
    case FBY_SPLIT_CLASSES:
        status = choose_classes(&made, dataset);
        break;
    }
    if (!status) *count = made.count;
    if (status || made.count == samples)
        free(made.words);
    else
        *out = made.words;
    return status;
}

int fby_split_ids(uint64_t **out, uint64_t *count, const fby_spec *spec, const fby_dataset *dataset,
                  fby_error *error)
{
    return choose(out, count, spec, dataset, fby_dataset_count(dataset), error);
}

int fby_split_choose(uint64_t **out, uint64_t *count, const fby_spec *spec, uint64_t samples,
                     fby_error *error)
{
    if (spec->split.kind == FBY_SPLIT_CLASSES)
        return fby_fail(error, FBY_EINVAL, "%s: split.classes: expected an open data set to find them in",
                        spec->name);
    return choose(out, count, spec, NULL, samples, error);
}
