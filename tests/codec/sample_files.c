#include "tests/codec/sample_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sample_file *)a)->name, ((const sample_file *)b)->name);
}

sample_file sample_file_read(const char *name)
{
    sample_file file = {.bytes = NULL};
    char path[1024];

    snprintf(file.name, sizeof file.name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", SAMPLE_FOLDER, name);
    FILE *stream = fopen(path, "rb");
    cr_assert_not_null(stream, "%s can't be opened", path);
    fseek(stream, 0, SEEK_END);
    file.length = (size_t)ftell(stream);
    rewind(stream);
    file.bytes = calloc(1, file.length + SAMPLE_FILE_MARGIN);
    cr_assert_not_null(file.bytes);
    cr_assert_eq(fread(file.bytes, 1, file.length, stream), file.length);
    fclose(stream);
    return file;
}

size_t sample_files_read(sample_file *files)
{
    DIR *folder = opendir(SAMPLE_FOLDER);
    size_t count = 0;
    struct dirent *entry;

    cr_assert_not_null(folder, "%s can't be opened", SAMPLE_FOLDER);
    while ((entry = readdir(folder)) && count < SAMPLE_FILES_MOST) {
        if (entry->d_name[0] != '.') files[count++] = sample_file_read(entry->d_name);
    }
    closedir(folder);
    cr_assert_gt(count, 30);
    qsort(files, count, sizeof *files, by_name);
    return count;
}

void sample_files_free(sample_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++) free(files[i].bytes);
}
