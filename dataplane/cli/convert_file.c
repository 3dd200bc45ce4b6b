/* One file of `forebay convert`. What is made is written beside its final name and renamed, so that whatever
 * is at a final name is whole, and a second run can go on from there. */
#include <errno.h>
#include <fcntl.h>
#include <forebay/fbl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/cli/cli.h"
#include "dataplane/cli/convert.h"

enum { LOOK = 64, MARGIN = 64, COPY = 1 << 20 };

static void fail(fby_convert_file *file, const char *what, int number)
{
    free(file->text);
    if (asprintf(&file->text, "%s: %s", what, strerror(number)) < 0) file->text = NULL;
    file->state = FBY_FILE_FAILED;
}

static int write_all(int to, const uint8_t *bytes, size_t length)
{
    while (length) {
        ssize_t put = write(to, bytes, length);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return -1;
        bytes += put;
        length -= (size_t)put;
    }
    return 0;
}

/* --- writing ------------------------------------------------------------------------------------------ */

/* The folders above a path below `place`. */
static int folders_make(int place, const char *path)
{
    char *copy = strdup(path);
    int status = copy ? 0 : -1;

    for (char *slash = copy ? strchr(copy, '/') : NULL; slash && !status; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        status = mkdirat(place, copy, 0777);
        if (status && errno == EEXIST) status = 0;
        *slash = '/';
    }
    free(copy);
    return status;
}

/* ".NAME.part" in the same folder: one run at a time writes to a folder, and overwrites what another left. */
static char *part_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    char *name;

    return asprintf(&name, "%.*s.%s.part", folder, path, path + folder) < 0 ? NULL : name;
}

/* Opens the temporary file; -1, errno says why. */
static int part_open(int place, const char *path, const char *part)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    int to = openat(place, part, flags, 0666);

    if (to >= 0 || errno != ENOENT) return to;
    return folders_make(place, path) ? -1 : openat(place, part, flags, 0666);
}

static int part_finish(int place, int to, const char *part, const char *path, int status)
{
    if (close(to)) status = -1;
    if (!status) status = renameat(place, part, place, path);
    if (!status) return 0;
    int number = errno;
    unlinkat(place, part, 0);
    errno = number;
    return -1;
}

static int file_write(int place, const char *path, const void *bytes, size_t length)
{
    char *part = part_name(path);
    int to = part ? part_open(place, path, part) : -1;
    int status = to < 0 ? -1 : part_finish(place, to, part, path, write_all(to, bytes, length));

    free(part);
    return status;
}

static int copy_all(int from, int to)
{
    uint8_t *buffer = malloc(COPY);
    ssize_t got = buffer ? 1 : -1;

    while (got > 0) {
        got = fby_file_read_some(from, buffer, COPY);
        if (got > 0 && write_all(to, buffer, (size_t)got)) got = -1;
    }
    free(buffer);
    return got < 0 ? -1 : 0;
}

/* --- what is there already ---------------------------------------------------------------------------- */

static bool not_older(const struct stat *made, const struct stat *source)
{
    if (made->st_mtim.tv_sec != source->st_mtim.tv_sec) return made->st_mtim.tv_sec > source->st_mtim.tv_sec;
    return made->st_mtim.tv_nsec >= source->st_mtim.tv_nsec;
}

/* Whether head and index are good and nothing is cut off. */
static bool is_whole(const void *bytes, size_t length)
{
    fby_fbl_decoder *decoder = NULL;
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;

    options.max_pixels = UINT64_MAX;
    bool whole =
        !fby_fbl_decoder_create(&decoder) && !fby_fbl_open(decoder, bytes, length, &options, NULL, NULL);
    fby_fbl_decoder_destroy(&decoder);
    return whole;
}

/* The size of what an earlier run made of this source, or 0. */
static uint64_t made_before(int place, const char *path, const struct stat *source)
{
    struct stat made;
    uint64_t bytes = 0;
    int file = openat(place, path, O_RDONLY | O_CLOEXEC);

    if (file < 0) return 0;
    if (!fstat(file, &made) && S_ISREG(made.st_mode) && made.st_size > 0 && not_older(&made, source)) {
        size_t length = (size_t)made.st_size;
        void *map = mmap(NULL, length, PROT_READ, MAP_PRIVATE, file, 0);
        if (map != MAP_FAILED) {
            if (is_whole(map, length)) bytes = length;
            munmap(map, length);
        }
    }
    close(file);
    return bytes;
}

static bool copied_before(int place, const char *path, const struct stat *source)
{
    struct stat made;

    return !fstatat(place, path, &made, 0) && S_ISREG(made.st_mode) && made.st_size == source->st_size &&
           not_older(&made, source);
}

/* --- the file ----------------------------------------------------------------------------------------- */

/* The source goes along as it is; `from` stands anywhere. */
static void copy(const fby_convert_place *place, int from, const struct stat *source, fby_convert_file *file)
{
    file->state = FBY_FILE_COPIED;
    file->after = (uint64_t)source->st_size;
    if (copied_before(place->to, file->copy, source)) return;
    file->fresh = true;
    char *part = part_name(file->copy);
    int to = part ? part_open(place->to, file->copy, part) : -1;
    int status = to < 0 ? -1 : 0;
    if (!status) {
        status = lseek(from, 0, SEEK_SET) < 0 ? -1 : copy_all(from, to);
        status = part_finish(place->to, to, part, file->copy, status);
    }
    if (status) fail(file, "can't be copied", errno);
    free(part);
}

static void refuse(fby_convert_file *file, fby_reason reason, const char *text)
{
    file->reason = reason;
    file->text = strdup(text);
}

/* Converts a source that begins as a picture does. False where it is to be copied. */
static bool convert(fby_converter *converter, const fby_convert_place *place,
                    const fby_convert_options *options, int from, const struct stat *source,
                    fby_convert_file *file)
{
    fby_converted result;
    size_t length = 0;

    file->after = made_before(place->to, file->to, source);
    if (file->after) {
        file->state = FBY_FILE_THERE;
        return true;
    }
    uint8_t *bytes = fby_file_read(from, &length);
    if (!bytes) {
        fail(file, "can't be read", errno);
        return true;
    }
    fby_reason reason = fby_convert(converter, bytes, length, options, &result);
    free(bytes);
    if (reason) {
        refuse(file, reason, fby_converter_text(converter));
        return false;
    }
    file->fresh = true;
    file->frames = result.source.frames;
    file->after = result.length;
    file->state = FBY_FILE_CONVERTED;
    if (file_write(place->to, file->to, result.bytes, result.length)) fail(file, "can't be written", errno);
    return true;
}

void fby_convert_file_do(fby_converter *converter, const fby_convert_place *place,
                         const fby_convert_options *options, fby_convert_file *file)
{
    uint8_t start[LOOK + MARGIN] = {0};
    struct stat source;
    int from = openat(place->from, file->from, O_RDONLY | O_CLOEXEC);
    ssize_t got = from < 0 || fstat(from, &source) ? -1 : fby_file_read_some(from, start, LOOK);

    if (got < 0) {
        fail(file, "can't be read", errno);
    } else {
        /* What is no picture is refused by its first bytes, and copied without ever being in memory. */
        fby_converted none;
        fby_reason reason = fby_format_decoded(fby_format_of(start, (size_t)got))
                                ? FBY_REASON_NONE
                                : fby_convert(converter, start, (size_t)got, options, &none);
        if (reason) refuse(file, reason, fby_converter_text(converter));
        if (reason || !convert(converter, place, options, from, &source, file))
            copy(place, from, &source, file);
    }
    if (from >= 0) close(from);
}
