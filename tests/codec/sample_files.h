/* The small pictures of every kind that also seed the fuzzer. */
#ifndef FBY_TESTS_CODEC_SAMPLE_FILES_H
#define FBY_TESTS_CODEC_SAMPLE_FILES_H

#include <stddef.h>
#include <stdint.h>

enum { SAMPLE_FILES_MOST = 100, SAMPLE_FILE_MARGIN = 64 };

typedef struct sample_file {
    char name[64];
    uint8_t *bytes; /* and a margin of SAMPLE_FILE_MARGIN */
    size_t length;
} sample_file;

/* Reads them all, sorted by name, and returns how many; a failure ends the test. */
size_t sample_files_read(sample_file *files);
/* One by its name. */
sample_file sample_file_read(const char *name);
void sample_files_free(sample_file *files, size_t count);

#endif
