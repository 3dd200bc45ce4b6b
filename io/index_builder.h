/* Writing an index: sizes first, then its parts, in order. */
#ifndef FBY_IO_INDEX_BUILDER_H
#define FBY_IO_INDEX_BUILDER_H

#include "io/index.h"

typedef struct fby_index_builder {
    fby_index_header *header;
    fby_index_sample *samples;
    fby_index_folder *folders;
    uint64_t *classes;
    char *strings;
    uint64_t bytes; /* of the block */
    uint64_t samples_added, folders_added, strings_used;
    uint32_t classes_added;
} fby_index_builder;

typedef struct fby_index_counts {
    uint64_t samples, folders, classes;
    uint64_t string_bytes; /* of all paths and names, each with its end; without the root's */
} fby_index_counts;

/* Maps a block for exactly these parts. */
int fby_index_builder_begin(fby_index_builder *builder, fby_dataset_kind kind, const char *root,
                            const fby_index_counts *counts, fby_error *error);
void fby_index_builder_class(fby_index_builder *builder, const char *name);
void fby_index_builder_folder(fby_index_builder *builder, const char *path, const fby_index_stamp *stamp,
                              uint64_t listing);
/* A sample at `folder`/`name`, or `name` where folder is "". */
void fby_index_builder_sample(fby_index_builder *builder, const char *folder, const char *name, uint64_t size,
                              int64_t label);
/* Fingerprints and seals the block, makes it read-only, and hands it over. */
void fby_index_builder_finish(fby_index_builder *builder, fby_index *out, int64_t checked, uint64_t left_out,
                              const fby_index_stamp *list);

#endif
