#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/names/names.h"
#include "dataplane/spec/spec.h"

/* Reads up to FBY_SPEC_BYTES + 1 bytes, so that a longer file is seen to be longer. */
static int read_text(const char *path, char *text, size_t *length, fby_error *error)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        fby_fail(error, FBY_EIO, "%s: can't open it: %s; expected a spec, a YAML file", path,
                 strerror(errno));
        fby_name_suggest(path, error);
        return FBY_EIO;
    }
    struct stat about;
    int status = FBY_OK;
    *length = 0;
    if (fstat(file, &about) || S_ISDIR(about.st_mode))
        status = fby_fail(error, FBY_EINVAL, "%s: a folder; expected a spec, a YAML file", path);
    while (!status && *length <= FBY_SPEC_BYTES) {
        ssize_t count = read(file, text + *length, FBY_SPEC_BYTES + 1 - *length);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) status = fby_fail(error, FBY_EIO, "%s: can't read it: %s", path, strerror(errno));
        if (count <= 0) break;
        *length += (size_t)count;
    }
    close(file);
    return status;
}

int fby_spec_load(fby_spec **out, const char *path, fby_error *error)
{
    *out = NULL;
    size_t length = 0;
    int status = FBY_OK;
    char *text = malloc(FBY_SPEC_BYTES + 1), *whole = NULL;
    if (!text) return fby_fail(error, FBY_ENOMEM, "%s: no memory to read it", path);
    status = read_text(path, text, &length, error);
    if (status) goto end;
    whole = realpath(path, NULL);
    if (!whole) {
        status = fby_fail(error, FBY_EIO, "%s: can't find its folder: %s", path, strerror(errno));
        goto end;
    }
    char *slash = strrchr(whole, '/');
    slash[slash == whole] = 0;
    const char *name = strrchr(path, '/');
    status = fby_spec_parse(out, name ? name + 1 : path, text, length, whole, error);
end:
    free(whole);
    free(text);
    return status;
}

void fby_spec_free(fby_spec **spec)
{
    fby_spec *s = *spec;
    if (!s) return;
    for (uint32_t i = 0; i < s->op_count; i++) free(s->ops[i].params);
    free(s->ops);
    for (uint32_t i = 0; i < s->split.class_count; i++) free(s->split.classes[i].name);
    free(s->split.classes);
    free(s->split.ids_path);
    free(s->dataset_path);
    free(s->name);
    free(s);
    *spec = NULL;
}
